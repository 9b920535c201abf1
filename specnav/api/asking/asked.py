# SPDX-License-Identifier: Apache-2.0
"""Turns a request body into a prompt, generation options and response settings. Pure.

Unsupported settings are refused; settings that do not change an answer are ignored. So every client gets exactly what
it asked for.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec.errors import ModelError, OptionsError
from specdec.models.prompt import Message, Prompt, conversation_prompt, plain_prompt
from specdec.options import LEAST_TEMPERATURE, MAX_SEED, GenerationOptions
from specdec.text.grammars import to_lark
from specnav.api.asking.bodies import (
    ChatBody,
    ChatMessage,
    CompletionBody,
    ImagePart,
    JsonObjectFormat,
    JsonSchemaFormat,
    RequestBody,
    check_among,
)
from specnav.api.asking.pictures import picture_of
from specnav.api.errors import ApiError, wrong

Kind = Literal["chat", "text"]
ROLES = {
    "system": "system",
    "developer": "system",  # OpenAI's newer name
    "user": "user",
    "assistant": "assistant",
}
COMPLETION_TOKENS = 16
"""Default length of a completion, as at OpenAI."""
_MOST_TEMPERATURE = 2.0
_MOST_BIAS = 100.0
_IDS = 1 << 31
_SEEDS = 1 << 63
_NAMES = {"min_new_tokens": "min_tokens", "grammar": "response_format"}
"""Request field names that differ from our option names."""
_FIRST_LOOK = 16
"""Characters per token in the first look at a prompt that may be too long."""


@dataclass(frozen=True)
class ApiRequest:
    """One request. prompt: turns of a conversation, a plain text, or token ids. length_field: name of the request field
    that bounds the answer.
    """

    kind: Kind
    model: str
    prompt: tuple[Message, ...] | str | tuple[int, ...]
    options: GenerationOptions
    stream: bool = False
    include_usage: bool = False
    token_ids: bool = False
    length_field: str = "max_tokens"

    @property
    def prompt_field(self) -> str:
        """Name of the request field that holds the prompt."""
        return "prompt" if self.kind == "text" else "messages"

    def encoded(self, tokenizer: Any) -> Prompt:
        """The prompt as it is sent to the verifier. Raises ModelError."""
        if isinstance(self.prompt, str):
            return plain_prompt(tokenizer, self.prompt)
        if self.kind == "chat":
            return conversation_prompt(tokenizer, [one for one in self.prompt if isinstance(one, Message)])
        ids = tuple(one for one in self.prompt if isinstance(one, int))
        if not ids:
            raise ModelError("the prompt is empty: give at least one token")
        return Prompt(ids)

    def is_surely_longer(self, tokenizer: Any, limit: int) -> bool:
        """Whether the prompt certainly has more than `limit` tokens. The time is bounded by the limit, while tokenising
        megabytes of text takes a minute. The check uses twice the limit, because cutting the text may add tokens.
        """
        if isinstance(self.prompt, str):
            text = self.prompt
        else:
            parts = (part for one in self.prompt if isinstance(one, Message) for part in one.content)
            text = "".join(part for part in parts if isinstance(part, str))
        looked = _FIRST_LOOK * limit
        while looked < len(text):
            if len(tokenizer(text[:looked])["input_ids"]) > 2 * limit:
                return True
            looked *= 2
        return False


def chat_asked(body: ChatBody, max_tokens: int) -> ApiRequest:
    """Parse a chat request. max_tokens: default length. Raises ApiError."""
    _check_common(body)
    if not body.messages:
        raise wrong("messages", "messages is empty: give at least one")
    turns = tuple(_turn(one, f"messages[{place}]") for place, one in enumerate(body.messages))
    most, field = body.max_completion_tokens, "max_completion_tokens"
    if most is None:
        most, field = body.max_tokens, "max_tokens"
    options = _options(body, max_tokens if most is None else most, _grammar(body), field)
    return ApiRequest("chat", body.model, turns, options, *_sending(body), field)


def completion_asked(body: CompletionBody) -> ApiRequest:
    """Parse a plain completion request. Raises ApiError."""
    _check_common(body)
    most = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    return ApiRequest("text", body.model, _plain(body.prompt), _options(body, most, ""), *_sending(body))


def _check_common(body: RequestBody) -> None:
    if body.stream_options is None:
        return
    if not body.stream:
        raise wrong("stream_options", "stream_options is for stream = true: leave one of them out")
    continuous = body.stream_options.continuous_usage_stats
    check_among("stream_options.continuous_usage_stats", continuous, (None, False))


def _sending(body: RequestBody) -> tuple[bool, bool, bool]:
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return bool(body.stream), usage, bool(body.return_token_ids)


def _turn(message: ChatMessage, param: str) -> Message:
    role = ROLES.get(message.role)
    if role is None:
        raise wrong(f"{param}.role", f"role {message.role!r} is not supported: use {', '.join(ROLES)}")
    for name in ("audio", "function_call", "reasoning", "reasoning_content", "tool_calls"):
        check_among(f"{param}.{name}", getattr(message, name), (None, "", []))
    if message.content is None:
        if role != "assistant":
            raise wrong(f"{param}.content", f"a message of the {message.role} has no content")
        return Message(role, ("",))
    if isinstance(message.content, str):
        return Message(role, (message.content,))
    pieces: list[str | bytes] = []
    for place, part in enumerate(message.content):
        if not isinstance(part, ImagePart):
            pieces.append(part.text)
        elif role != "user":
            raise wrong(f"{param}.content[{place}]", "pictures are allowed only in user messages")
        else:
            where = f"{param}.content[{place}].image_url"
            pieces.append(picture_of(part.image_url.url, f"{where}.url"))
            check_among(f"{where}.detail", part.image_url.detail, (None, "auto"))
    return Message(role, tuple(pieces) or ("",))


def _plain(prompt: str | Sequence[Any]) -> str | tuple[int, ...]:
    """The one prompt of a completion request."""
    if isinstance(prompt, str):
        return prompt
    ids = prompt
    if len(prompt) == 1 and not isinstance(prompt[0], int):
        if isinstance(prompt[0], str):
            return prompt[0]
        ids = prompt[0]
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        what = f"holds {len(prompt)} prompts: send one per request" if len(prompt) > 1 else "is not a prompt"
        raise wrong("prompt", f"prompt {what}, as text or as a list of token ids")
    return tuple(ids)


def _options(body: RequestBody, max_tokens: int, grammar: str, field: str = "max_tokens") -> GenerationOptions:
    """field: name of the field that max_tokens comes from."""
    temperature = 1.0 if body.temperature is None else body.temperature
    if not 0 <= temperature <= _MOST_TEMPERATURE:
        raise wrong("temperature", f"temperature = {temperature!r} is out of range: choose 0 to 2")
    if max_tokens < 1:
        raise wrong(field, f"{field} = {max_tokens!r} is out of range: choose at least 1")
    if (body.min_tokens or 0) > max_tokens:
        raise wrong("min_tokens", f"min_tokens = {body.min_tokens} is more than {field} = {max_tokens}")
    if body.top_p is not None and not 0 <= body.top_p <= 1:
        raise wrong("top_p", f"top_p = {body.top_p!r} is out of range: choose 0 to 1")
    if body.seed is not None and not -_SEEDS <= body.seed < _SEEDS:
        raise wrong("seed", f"seed = {body.seed!r:.100} is out of range: choose -2^63 to 2^63 - 1")
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    try:
        return GenerationOptions(
            max_new_tokens=max_tokens,
            temperature=0.0 if temperature < LEAST_TEMPERATURE else float(temperature),
            seed=secrets.randbits(63) if body.seed is None else body.seed & MAX_SEED,
            top_k=body.top_k or 0,
            top_p=1.0 if body.top_p is None else max(float(body.top_p), 1e-9),
            min_p=float(body.min_p or 0.0),
            repetition_penalty=1.0 if body.repetition_penalty is None else float(body.repetition_penalty),
            logit_bias=_biases(body.logit_bias or {}),
            min_new_tokens=body.min_tokens or 0,
            stop=stop,
            grammar=grammar,
        )
    except OptionsError as error:
        name, _, rest = str(error).partition(" ")
        name = field if name == "max_new_tokens" else _NAMES.get(name, name)
        raise ApiError(400, f"{name} {rest}", param=name) from None


def _biases(biases: dict[str, float]) -> tuple[tuple[int, float], ...]:
    try:
        # int() also accepts digits of other scripts, and 1_0.
        if not all(token.isascii() and token.isdecimal() for token in biases):
            raise ValueError
        found = tuple((int(token), float(bias)) for token, bias in biases.items())
    except ValueError:
        found = ((-1, 0.0),)
    if any(not 0 <= token < _IDS or not -_MOST_BIAS <= bias <= _MOST_BIAS for token, bias in found):
        raise wrong("logit_bias", "logit_bias maps token ids to numbers from -100 to 100")
    return found


def _grammar(body: ChatBody) -> str:
    form = body.response_format
    if isinstance(form, JsonObjectFormat):
        schema, where = {"type": "object"} if form.schema is None else form.schema, "response_format.schema"
    elif isinstance(form, JsonSchemaFormat):
        where = "response_format.json_schema.schema"
        if form.json_schema.schema is None:
            raise wrong(where, "the schema is missing")
        schema = form.json_schema.schema
    else:
        return ""
    settings: object = schema.get("x-guidance", {})
    if not isinstance(settings, dict) or settings.get("lenient"):
        raise wrong(where, "x-guidance must not be lenient: unsupported keywords would be ignored")
    try:
        return to_lark(json.dumps(schema), ".json")
    except ValueError as error:
        raise wrong(where, f"the schema cannot be used: {error}") from None

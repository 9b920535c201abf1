# SPDX-License-Identifier: Apache-2.0
"""Request bodies with type checks. An unknown field is refused unless it cannot change the answer: no request of a
client is silently ignored.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from specnav.api.errors import ApiError, wrong

_MOST_SHOWN = 100


HARMLESS = frozenset(
    {
        "metadata", "parallel_tool_calls", "prediction", "priority", "prompt_cache_key", "prompt_cache_retention",
        "request_id", "safety_identifier", "service_tier", "spaces_between_special_tokens", "store", "user",
    }
)  # fmt: skip
"""Fields that never change an answer here, whatever their value; they are ignored."""
NEUTRAL: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "add_special_tokens": (),
    "allowed_token_ids": ([],),
    "audio": (),
    "bad_words": ([],),
    "best_of": (1,),
    "chat_template": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "early_stopping": (False,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "grammar": ("",),
    "guided_choice": ([],),
    "guided_grammar": ("",),
    "guided_json": (),
    "guided_regex": ("",),
    "ignore_eos": (False,),
    "include_reasoning": (True,),
    "include_stop_str_in_output": (False,),
    "json_schema": (),
    "length_penalty": (1,),
    "logits_processors": ([],),
    "logprobs": (False,),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "n": (1,),
    "presence_penalty": (0,),
    "prompt_logprobs": (0,),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Known but unsupported fields, with the values (besides null) that ask for nothing."""


class BodyPart(Struct, forbid_unknown_fields=True):
    """A part of a body in which every field is declared."""


class TextPart(BodyPart, tag="text"):
    """A text part of a message."""

    text: str


class ImageUrl(BodyPart):
    """Where a picture is. detail: resolution hint; here the model's own rules decide."""

    url: str
    detail: str | None = None


class ImagePart(BodyPart, tag="image_url"):
    """A picture part of a message."""

    image_url: ImageUrl


class ChatMessage(BodyPart):
    """A turn of the conversation. The fields below the line are what clients send back from earlier answers: the first
    three are not shown to a model, the others must be empty.
    """

    role: str
    content: str | list[TextPart | ImagePart] | None = None
    # --
    name: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class StreamOptions(BodyPart):
    """How to stream. include_obfuscation: accepted and ignored."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class TextFormat(BodyPart, tag="text"):
    """Any text."""


class JsonObjectFormat(BodyPart, tag="json_object"):
    """A JSON object, optionally following a schema."""

    schema: dict[str, Any] | None = None


class JsonSchema(BodyPart):
    """A schema, and OpenAI's fields about it."""

    schema: dict[str, Any] | None = None
    name: str = ""
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(BodyPart, tag="json_schema"):
    """JSON that follows a schema."""

    json_schema: JsonSchema


class RequestBody(Struct, kw_only=True):
    """Fields of both kinds of requests; None means not given. The fields below the line are extensions of OpenAI's API
    that some other servers have as well.
    """

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    # --
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    return_token_ids: bool | None = None


class ChatBody(RequestBody, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None


class CompletionBody(RequestBody, kw_only=True):
    """POST /v1/completions. prompt: a text, token ids, or a list of one of these."""

    prompt: str | list[Any]


AnyBody = TypeVar("AnyBody", bound=RequestBody)
_AT = re.compile(r" - at `\$\.?([^`]*)`$")


def read_body(data: bytes, kind: type[AnyBody]) -> AnyBody:
    """Decode and check a body. Raises ApiError that names the wrong field."""
    try:
        body = msgspec.json.decode(data, type=kind)
        for name, raw in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items():
            if name not in kind.__struct_fields__ and name not in HARMLESS:
                _check_neutral(name, msgspec.json.decode(raw))
    except msgspec.ValidationError as error:
        said = str(error)
        place = _AT.search(said)
        named = re.search(r"(?:missing required|unknown) field `([^`]*)`", said)
        param = ".".join(filter(None, [place[1] if place else "", named[1] if named else ""]))
        raise ApiError(400, f"{param or 'the body'}: {_AT.sub('', said)}", param=param or None) from None
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    return body


def too_deep() -> ApiError:
    """The error for a body that is too deep to be decoded, or to be shown or written again."""
    return ApiError(400, "the body is nested too deeply")


def _check_neutral(name: str, value: object) -> None:
    if name in NEUTRAL:
        check_among(name, value, (None, *NEUTRAL[name]))
    elif value is not None:
        name = name[:_MOST_SHOWN]
        raise wrong(name, f"{name!r} is an unknown field: leave it out", code="unknown_parameter")


def _cut(value: object) -> str:
    """A value as shown in errors, shortened: a list of tools may be long."""
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def check_among(name: str, value: object, taken: tuple[object, ...]) -> None:
    """Raise ApiError if a field's value is not among the accepted ones."""
    # In Python 0 == False and 1 == True, but here they differ: see `logprobs` of completions.
    if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in taken):
        raise wrong(name, f"{name} = {_cut(value)} is not supported here: leave it out", code="unsupported_value")

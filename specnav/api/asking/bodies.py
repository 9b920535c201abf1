"""Request bodies as they come, checked for types and nothing else. Unknown fields are ignored, as OpenAI does."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from specnav.api.errors import ApiError, wrong

_MOST_SHOWN = 100


class TextPart(Struct, tag="text"):
    """A piece of a message that is text."""

    text: str


class ImageUrl(Struct):
    """Where a picture is."""

    url: str


class ImagePart(Struct, tag="image_url"):
    """A piece of a message that is a picture."""

    image_url: ImageUrl


class ChatMessage(Struct):
    """A turn of the conversation."""

    role: str
    content: str | list[TextPart | ImagePart] | None = None


class StreamOptions(Struct):
    """How to stream."""

    include_usage: bool = False


class TextFormat(Struct, tag="text"):
    """Any text."""


class JsonObjectFormat(Struct, tag="json_object"):
    """Some JSON object."""


class JsonSchema(Struct):
    """A schema, and what OpenAI wants to know about it."""

    schema: dict[str, Any] | None = None
    name: str = ""


class JsonSchemaFormat(Struct, tag="json_schema"):
    """JSON as a schema says."""

    json_schema: JsonSchema


class Body(Struct, kw_only=True):
    """What both kinds of requests have; None is what was not said. Below the line: what only ours and a few others'
    servers have.
    """

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    logit_bias: dict[str, float] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: bool | int | None = None
    # --
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    return_token_ids: bool | None = None


class ChatBody(Body, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None


class CompletionBody(Body, kw_only=True):
    """POST /v1/completions. prompt: a text or token ids, or a list of one of these."""

    prompt: str | list[Any]
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None


AnyBody = TypeVar("AnyBody", bound=Body)
_AT = re.compile(r" - at `\$\.?([^`]*)`$")


def read_body(data: bytes, kind: type[AnyBody]) -> AnyBody:
    """Raises ApiError with the field that is wrong."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        said = str(error)
        place = _AT.search(said)
        missing = re.search(r"missing required field `(\w+)`", said)
        param = ".".join(filter(None, [place[1] if place else "", missing[1] if missing else ""]))
        raise ApiError(400, f"{param or 'the body'}: {_AT.sub('', said)}", param=param or None) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None


def _cut(value: object) -> str:
    """A value as errors show it: a list of tools may be long."""
    shown = repr(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def first_unlike(pairs: list[tuple[str, object, tuple[object, ...]]]) -> None:
    """Raise ApiError for the first (field, value, values that are taken) whose value is none of those."""
    for name, value, taken in pairs:
        if value not in taken:
            raise wrong(name, f"{name} = {_cut(value)} is not supported here", code="unsupported_value")

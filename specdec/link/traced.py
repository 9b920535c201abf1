# SPDX-License-Identifier: Apache-2.0
"""Messages with a trace: the same ones with one more field at their end, sent only where tracing is on.

A side that traces nothing neither sends the field nor looks at it: trailing fields that are not known are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from specdec.link.wire import (
    MAX_UP_BYTES,
    AloneUp,
    Close,
    DraftUp,
    Hello,
    HiddenUp,
    More,
    Open,
    PartUp,
    Ping,
    SampledUp,
    Up,
    decode_up,
)

Trace = Annotated[str, Meta(max_length=128)]
"""A W3C traceparent, "00-<trace>-<span>-<flags>"; "": none. What is none counts for nothing."""


class TracedOpen(Open, frozen=True, array_like=True, tag=2):
    """An Open, and the span that it belongs to."""

    trace: Trace = ""


class TracedDraftUp(DraftUp, frozen=True, array_like=True, tag=3):
    """A DraftUp, and the span that it belongs to."""

    trace: Trace = ""


class TracedSampledUp(SampledUp, frozen=True, array_like=True, tag=6):
    """A SampledUp, and the span that it belongs to."""

    trace: Trace = ""


class TracedPartUp(PartUp, frozen=True, array_like=True, tag=10):
    """A PartUp whose draft may have a trace: that of the last part counts."""

    draft: TracedDraftUp | TracedSampledUp


Carrier = TypeVar("Carrier", bound=Open | DraftUp | SampledUp | PartUp)
_KINDS: dict[type, Callable[..., Any]] = {Open: TracedOpen, DraftUp: TracedDraftUp, SampledUp: TracedSampledUp}
_decoder = msgspec.msgpack.Decoder(
    Hello
    | TracedOpen
    | TracedDraftUp
    | Close
    | Ping
    | TracedSampledUp
    | More
    | HiddenUp
    | AloneUp
    | TracedPartUp
)


def with_trace(message: Carrier, trace: str) -> Carrier:
    """The same message with a traceparent; a part carries it with its draft."""
    if isinstance(message, PartUp):
        return msgspec.structs.replace(message, draft=with_trace(message.draft, trace))
    traced: Carrier = _KINDS[type(message)](*msgspec.structs.astuple(message), trace)
    return traced


def decode_traced(data: bytes, max_bytes: int = MAX_UP_BYTES) -> Up:
    """As decode_up; what may have a trace comes with it, unless what stands there cannot be one."""
    message = decode_up(data, max_bytes)
    if type(message) not in _KINDS and not isinstance(message, PartUp):
        return message
    try:
        traced: Up = _decoder.decode(data)
    except msgspec.MsgspecError:
        return message
    return traced

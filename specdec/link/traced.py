# SPDX-License-Identifier: Apache-2.0
"""Messages with a trace: the plain messages with one more field at the end, sent only if tracing is on.

A side without tracing neither sends nor reads the field: unknown trailing fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from specdec.link.wire import (
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
"""A W3C traceparent, "00-<trace>-<span>-<flags>"; "": none. Invalid values are ignored."""


class TracedOpen(Open, frozen=True, array_like=True, tag=2):
    """An Open with the span that it belongs to."""

    trace: Trace = ""


class TracedDraftUp(DraftUp, frozen=True, array_like=True, tag=3):
    """A DraftUp with the span that it belongs to."""

    trace: Trace = ""


class TracedSampledUp(SampledUp, frozen=True, array_like=True, tag=6):
    """A SampledUp with the span that it belongs to."""

    trace: Trace = ""


class TracedPartUp(PartUp, frozen=True, array_like=True, tag=10):
    """A PartUp whose draft may have a trace; the trace of the last part is used."""

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
    """Add a traceparent to a message; a part carries it in its draft."""
    if isinstance(message, PartUp):
        return msgspec.structs.replace(message, draft=with_trace(message.draft, trace))
    traced: Carrier = _KINDS[type(message)](*msgspec.structs.astuple(message), trace)
    return traced


def decode_traced(data: bytes) -> Up:
    """As decode_up, but keeps the trace of messages that may have one; an undecodable trace is dropped."""
    message = decode_up(data)
    if type(message) not in _KINDS and not isinstance(message, PartUp):
        return message
    try:
        traced: Up = _decoder.decode(data)
    except msgspec.MsgspecError:
        return message
    return traced

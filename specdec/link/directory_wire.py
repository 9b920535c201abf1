# SPDX-License-Identifier: Apache-2.0
"""Messages between an edge and the directory of a fleet, which assigns verifiers to edges.

As on the [wire](wire.py) between edge and verifier, messages are msgpack arrays that begin with the message's number.
Sizes are checked before anything is decoded, and foreign bytes raise only ProtocolError. An answer's tokens never pass
through a directory.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from specdec.errors import ProtocolError
from specdec.link.wire import Count, decoded

DIRECTORY_VERSION = 1
SCHEME = "fleet://"
EDGE_BYTES = 16
MARK_BYTES = 8
MOST_MARKS = 8
MOST_OTHERS = 8
MOST_BYTES = 4096
"""Most bytes of a message, in either direction."""

Address = Annotated[str, Meta(max_length=128)]
EdgeId = Annotated[bytes, Meta(min_length=EDGE_BYTES, max_length=EDGE_BYTES)]
Identity = Annotated[bytes, Meta(max_length=32)]
Mark = Annotated[bytes, Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]


class Ask(Struct, frozen=True, array_like=True, tag=1):
    """Request for a verifier. Sent by an edge without one, and at the beginning of every answer.

    Attributes:
        version: Never moves: it stays the first element in all versions.
        number: Repeated in the reply.
        edge: The edge's id, chosen at random.
        at: The verifier in use; "" for none.
        active: An answer begins or continues.
        same: Required identity of the verifier, because one with it began the answer; b"": any.
        avoid: Verifiers that have just failed for this edge.
        marks: Digests of the prompt's beginning and pictures, so that edges with equal prompts share a verifier.
    """

    version: Count
    number: Count
    edge: EdgeId
    at: Address = ""
    active: bool = False
    same: Identity = b""
    avoid: Annotated[list[Address], Meta(max_length=MOST_OTHERS)] = []
    marks: Annotated[list[Mark], Meta(max_length=MOST_MARKS)] = []


class Rest(Struct, frozen=True, array_like=True, tag=2):
    """The answer has ended; there is no reply."""

    edge: EdgeId


class Take(Struct, frozen=True, array_like=True, tag=33):
    """Use this verifier. identity: verifiers with equal identities give equal answers, token for token. others: more
    verifiers with this identity, for use when both this verifier and the directory are unreachable.
    """

    number: Count
    address: Address
    identity: Identity = b""
    others: Annotated[list[Address], Meta(max_length=MOST_OTHERS)] = []


class Nobody(Struct, frozen=True, array_like=True, tag=34):
    """No verifier is available now. code: one of the NOBODY_* words. number: 0 if the request could not be read."""

    number: Count
    code: Annotated[str, Meta(max_length=32)]
    text: Annotated[str, Meta(max_length=500)]


NOBODY_READY = "ready"
NOBODY_SAME = "same"
NOBODY_VERSION = "version"
NOBODY_MALFORMED = "malformed"
NOBODY_KEY = "key"

Asked = Ask | Rest
Told = Take | Nobody

_encoder = msgspec.msgpack.Encoder()
_asked = msgspec.msgpack.Decoder(Asked)
_told = msgspec.msgpack.Decoder(Told)


def encode(message: Asked | Told) -> bytes:
    """Encode a message."""
    return _encoder.encode(message)


def decode_asked(data: bytes) -> Asked:
    """Decode a message from an edge. Raises ProtocolError for anything else."""
    _check_size(data)
    message: Asked = decoded(_asked, data)
    return message


def decode_told(data: bytes) -> Told:
    """Decode a message from a directory. Raises ProtocolError for anything else."""
    _check_size(data)
    message: Told = decoded(_told, data)
    return message


def _check_size(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"a message of {len(data)} bytes exceeds the limit of {MOST_BYTES}")

# SPDX-License-Identifier: Apache-2.0
"""What an edge and the directory of a fleet say to each other: which verifier answers whom.

Like the [wire](wire.py) of edge and verifier: msgpack arrays that begin with the message's number, sizes checked before
anything is decoded, and nothing but ProtocolError for foreign bytes. An answer's tokens never go through a directory.
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
"""Of a message, in either direction."""

Address = Annotated[str, Meta(max_length=128)]
EdgeId = Annotated[bytes, Meta(min_length=EDGE_BYTES, max_length=EDGE_BYTES)]
Identity = Annotated[bytes, Meta(max_length=32)]
Mark = Annotated[bytes, Meta(min_length=MARK_BYTES, max_length=MARK_BYTES)]


class Ask(Struct, frozen=True, array_like=True, tag=1):
    """Which verifier shall I use? Sent where there is none, and with every answer that begins. Its first element never
    changes.

    number: comes back with the reply. edge: by which this edge is known, chosen at random. at: the verifier that it
    uses now, "" for none. active: an answer begins, or goes on. same: only a verifier of this identity will do, since
    one of it began the answer; b"": any. avoid: verifiers that have just failed it. marks: of what the answer's prompt
    begins with and of its pictures, so that edges that ask the same come together.
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
    """The answer is over; not answered."""

    edge: EdgeId


class Take(Struct, frozen=True, array_like=True, tag=33):
    """Use this verifier. identity: two verifiers that have the same give the same answers, token for token. others:
    more of that kind, for when both this one and the directory are gone.
    """

    number: Count
    address: Address
    identity: Identity = b""
    others: Annotated[list[Address], Meta(max_length=MOST_OTHERS)] = []


class Nobody(Struct, frozen=True, array_like=True, tag=34):
    """No verifier can be named now. code: one of the NOBODY_* words. number: 0 where nothing was understood."""

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
    """A message as the bytes that travel."""
    return _encoder.encode(message)


def decode_asked(data: bytes) -> Asked:
    """Bytes from an edge -> message. Raises ProtocolError for anything else."""
    _check_size(data)
    message: Asked = decoded(_asked, data)
    return message


def decode_told(data: bytes) -> Told:
    """Bytes from a directory -> message. Raises ProtocolError for anything else."""
    _check_size(data)
    message: Told = decoded(_told, data)
    return message


def _check_size(data: bytes) -> None:
    if len(data) > MOST_BYTES:
        raise ProtocolError(f"a message of {len(data)} bytes exceeds the limit of {MOST_BYTES}")

# SPDX-License-Identifier: Apache-2.0
"""What a bad verifier, or a bad network, does to the messages that come down: bytes in, bytes with delays out."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from specdec.errors import ProtocolError
from specdec.link.wire import Welcome, decode_down, encode

Passing = list[tuple[float, bytes]]
"""What becomes of a message: delays, s, and bytes."""
Meddler = Callable[[bytes], Passing]

REPEAT_S = (0.0, 0.05)
OTHER_SESSION = 7777


def untouched(data: bytes) -> Passing:
    """Nothing happens."""
    return [(0.0, data)]


def garbage(seed: int) -> Meddler:
    """Every message becomes noise: random bytes, half a message, a flipped byte, nothing, or another's words."""
    generator = random.Random(seed)

    def meddle(data: bytes) -> Passing:
        flipped = bytearray(data)
        flipped[generator.randrange(len(data))] ^= 0xFF
        choices = (
            generator.randbytes(len(data)),
            data[: len(data) // 2],
            bytes(flipped),
            b"",
            b'{"error": "HTTP/1.1 502 Bad Gateway"}',
        )
        return [(0.0, generator.choice(choices))]

    return meddle


def late(seconds: float) -> Meddler:
    """Every message comes so much later."""

    def meddle(data: bytes) -> Passing:
        return [(seconds, data)]

    return meddle


def twice(data: bytes) -> Passing:
    """Every message comes again, a moment later."""
    return [(delay, data) for delay in REPEAT_S]


def foreign(data: bytes) -> Passing:
    """Every message about a session is addressed to another one."""
    try:
        message = decode_down(data)
    except ProtocolError:
        return untouched(data)
    if isinstance(message, Welcome):
        return untouched(data)
    return [(0.0, encode(msgspec.structs.replace(message, session=OTHER_SESSION)))]

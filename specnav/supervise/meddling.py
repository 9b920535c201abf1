# SPDX-License-Identifier: Apache-2.0
"""Faults of a bad verifier or network: functions from a downlink message to messages and their delays."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from specdec.errors import ProtocolError
from specdec.link.wire import Welcome, decode_down, encode

Passing = list[tuple[float, bytes]]
"""What is delivered instead of a message: delays in seconds, and bytes."""
Meddler = Callable[[bytes], Passing]

REPEAT_S = (0.0, 0.05)
OTHER_SESSION = 7777


def untouched(data: bytes) -> Passing:
    """Leave messages as they are."""
    return [(0.0, data)]


def garbage(seed: int) -> Meddler:
    """Corrupt every message: random bytes, half of it, a flipped byte, no bytes, or another protocol's answer."""
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
    """Delay every message by this many seconds."""

    def meddle(data: bytes) -> Passing:
        return [(seconds, data)]

    return meddle


def twice(data: bytes) -> Passing:
    """Deliver every message a second time, shortly after the first."""
    return [(delay, data) for delay in REPEAT_S]


def foreign(data: bytes) -> Passing:
    """Re-address every message about a session to another session."""
    try:
        message = decode_down(data)
    except ProtocolError:
        return untouched(data)
    if isinstance(message, Welcome):
        return untouched(data)
    return [(0.0, encode(msgspec.structs.replace(message, session=OTHER_SESSION)))]

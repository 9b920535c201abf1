# SPDX-License-Identifier: Apache-2.0
"""Diagnoses a failed handshake: the peer's ZeroMQ greeting shows whether it requires keys."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

_SIGNATURE = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"
_MAJOR_VERSION = b"\x03"
_GREETING_BYTES, _MECHANISM = 64, slice(12, 32)


def mechanism_at(address: str, timeout_s: float = 0.5) -> str:
    """Security mechanism of the ZeroMQ server at tcp://HOST:PORT: "NULL" (none) or "CURVE".

    "" if nothing answers within the time-out, or the peer is not a ZeroMQ server.
    """
    try:
        place = urlsplit(address)
        with socket.create_connection((place.hostname or "", place.port or 0), timeout_s) as link:
            # Send only this much: the server closes the connection if the greeting names another mechanism.
            link.sendall(_SIGNATURE + _MAJOR_VERSION)
            greeting = b""
            while len(greeting) < _GREETING_BYTES and (part := link.recv(_GREETING_BYTES - len(greeting))):
                greeting += part
    except (OSError, ValueError):
        return ""
    if len(greeting) < _GREETING_BYTES or greeting[0] != 0xFF or greeting[9] != 0x7F:
        return ""
    return greeting[_MECHANISM].rstrip(b"\0").decode("ascii", "replace")

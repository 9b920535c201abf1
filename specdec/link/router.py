# SPDX-License-Identifier: Apache-2.0
"""Creates ROUTER sockets whose clients cannot guess the routing ids that libzmq assigns to others, and binds them."""

from __future__ import annotations

import ctypes
import secrets
from contextlib import suppress

import zmq

from specdec.link.binding import is_ipv6


def new_router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """Create a ROUTER socket, not bound yet.

    libzmq numbers clients without a routing id upwards from C's rand(), which it does not seed. A client that claims
    the next number as its own id makes libzmq abort the process when that number is reached. So rand() is seeded first.
    """
    with suppress(OSError, AttributeError, TypeError):  # the C library may not be accessible
        ctypes.CDLL(None).srand(secrets.randbits(32))
    return context.socket(zmq.ROUTER)


def bind_router(
    router: zmq.Socket[bytes],
    bind: str,
    error: type[Exception],
    who: str = "",
    advice: str = "choose an address of this machine and a free port",
) -> None:
    """Bind a socket to tcp://HOST:PORT. Raises `error`, a line with who cannot listen and what to do."""
    try:
        router.setsockopt(zmq.IPV6, is_ipv6(bind))
        router.bind(bind)
    except zmq.ZMQError as why:
        raise error(f"{who}cannot listen on {bind} ({why}): {advice}") from why

# SPDX-License-Identifier: Apache-2.0
"""Where a ROUTER socket comes from: one whose clients cannot guess the ids that libzmq gives to others."""

from __future__ import annotations

import ctypes
import secrets
from contextlib import suppress

import zmq


def new_router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A ROUTER socket, not bound yet.

    libzmq numbers clients that name no routing id of their own, upwards from C's rand(), which it leaves unseeded. A
    client that claims the next number aborts the process when libzmq comes to it. So rand() is seeded first.
    """
    with suppress(OSError, AttributeError, TypeError):  # a C library that cannot be reached by its name
        ctypes.CDLL(None).srand(secrets.randbits(32))
    return context.socket(zmq.ROUTER)

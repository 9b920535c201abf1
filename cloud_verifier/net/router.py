# SPDX-License-Identifier: Apache-2.0
"""The verifier's socket to its clients, with bounds on what ZeroMQ and the system buffer for each, both ways."""

from __future__ import annotations

import zmq

from specdec.link.router import new_router

_SENT_AHEAD = 64
"""Replies to one client that ZeroMQ buffers; further ones wait in the outbox, which counts their bytes."""
_SEND_BUFFER = 1 << 20
"""Bytes that the system buffers for one client; by default it buffers several times more, which cannot be counted."""
_READ_AHEAD = 4
"""Messages of one client that ZeroMQ buffers before it stops reading; each of them may be long."""
_HARD_CAP = 65 << 20
"""ZeroMQ silently closes the connection for a longer message. It is above the configurable maximum, so that messages
only slightly too long are refused with a reason.
"""
LINGER_MS = 200
"""Time to send the last replies when the verifier ends."""


def make_router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """A router that is not bound yet. Replies beyond its buffers wait in the outbox, which counts them."""
    router = new_router(context)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a client that is gone must show up as an error
    router.setsockopt(zmq.SNDHWM, _SENT_AHEAD)
    router.setsockopt(zmq.SNDBUF, _SEND_BUFFER)
    router.setsockopt(zmq.RCVHWM, _READ_AHEAD)
    router.setsockopt(zmq.LINGER, LINGER_MS)
    router.setsockopt(zmq.MAXMSGSIZE, _HARD_CAP)
    return router

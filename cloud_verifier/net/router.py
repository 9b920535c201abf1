# SPDX-License-Identifier: Apache-2.0
"""The verifier's socket towards its clients: how much of each client waits in ZeroMQ and in the system, both ways."""

from __future__ import annotations

import zmq

from specdec.link.router import new_router

_SENT_AHEAD = 64
"""Replies to one client that ZeroMQ holds; what goes beyond waits in the outbox, where bytes are counted."""
_SEND_BUFFER = 1 << 20
"""Bytes that the system holds for one client: it would take several times as many, and they could not be counted."""
_READ_AHEAD = 4
"""Messages of one client that ZeroMQ holds before it stops reading: any of them may be long."""
_HARD_CAP = 65 << 20
"""ZeroMQ closes the connection for a longer message without a word. That is more than may be configured, so
that what is too long by a little is refused with a reason.
"""
LINGER_MS = 200
"""How long the last replies may take to leave when the verifier ends."""


def make_router(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    """Not bound yet: what goes beyond these bounds is the outbox's to hold, and to count."""
    router = new_router(context)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a client that is gone must show up as an error
    router.setsockopt(zmq.SNDHWM, _SENT_AHEAD)
    router.setsockopt(zmq.SNDBUF, _SEND_BUFFER)
    router.setsockopt(zmq.RCVHWM, _READ_AHEAD)
    router.setsockopt(zmq.LINGER, LINGER_MS)
    router.setsockopt(zmq.MAXMSGSIZE, _HARD_CAP)
    return router

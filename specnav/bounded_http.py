# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 for servers that untrusted clients reach: bounds what a connection may send, hold and wait for.

uvicorn's h11 protocol bounds the size of headers that are still incomplete. This bounds complete ones, too, and adds
time limits, a maximum number of connections, and a limit on how long a client may leave its reply unread. httptools is
not used because it does not limit headers.
"""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES = 32_768
HEAD_S = 10.0
"""Time to receive a request's headers, from the start of the connection, later from the first byte."""
BODY_S, BODY_BYTES_PER_S = 30.0, 2048
"""Time to receive a body: BODY_S, plus one second for every BODY_BYTES_PER_S bytes received."""
STUCK_S = 60.0
"""A client that reads so little of a reply that it has to wait for this long is disconnected."""
MOST_CONNECTIONS = 512
BACKLOG, WAITING = 32, 256
"""Connections accepted in one go before an old one is closed; connections that wait in the kernel meanwhile."""


class BoundedProtocol(H11Protocol):
    """One connection. If there are too many, the one that has been idle longest is closed."""

    most_connections = MOST_CONNECTIONS
    _timer: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _began = 0.0
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register a connection, closing the longest idle one if there are too many."""
        super().connection_made(transport)
        self._began = self.loop.time()
        self._close_in(HEAD_S)
        if len(self.connections) <= self.most_connections:
            return
        idle = [one for one in self.connections if isinstance(one, BoundedProtocol) and one.is_idle and one is not self]
        last = min(idle, key=lambda one: one._began, default=self)
        self.connections.discard(last)
        last.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Handle bytes; the timeout of headers starts with their first byte, that of a body with its request."""
        was_idle = self.is_idle
        if was_idle and self._timer is None:
            self._close_in(HEAD_S)
        super().data_received(data)
        if self.is_idle or self.transport.is_closing():
            return
        if was_idle:
            self._began, self._body_bytes = self.loop.time(), 0
        self._body_bytes += len(data)
        if self.cycle.more_body:
            self._close_in(self._began + BODY_S + self._body_bytes / BODY_BYTES_PER_S - self.loop.time())
        else:
            self._stop_clock()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, unless its beginning has been replied to already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Get ready for the next request."""
        self._began, self._body_bytes = self.loop.time(), 0
        self._stop_clock()
        super().on_response_complete()
        if not self.is_idle and self.cycle.more_body:  # a request that was sent before this reply has begun
            self._close_in(BODY_S)

    def pause_writing(self) -> None:
        """The client has stopped reading."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._stop_clock()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def _close_in(self, seconds: float) -> None:
        self._stop_clock()
        self._timer = self.loop.call_later(max(0.0, seconds), self.transport.abort)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def with_bounded_heads(app: Any) -> Any:
    """The application, which answers 431 to a request with more than HEAD_BYTES of headers."""

    async def bounded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or _head_bytes(scope) <= HEAD_BYTES:
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 431, "headers": headers})
        body = f"a request has at most {HEAD_BYTES} bytes of headers\n".encode()
        await send({"type": "http.response.body", "body": body})

    return bounded


def _head_bytes(scope: Any) -> int:
    first = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"])
    return first + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def bounded_config(app: Any, own_files: int, **given: Any) -> uvicorn.Config:
    """uvicorn's settings for a bounded server. own_files: descriptors that the process needs for other things."""
    files = raised_file_limit()
    most = max(16, min(MOST_CONNECTIONS, files - own_files - BACKLOG))
    protocol = type("BoundedProtocol", (BoundedProtocol,), {"most_connections": most})
    return uvicorn.Config(
        with_bounded_heads(app),
        http=protocol,
        ws="none",
        h11_max_incomplete_event_size=HEAD_BYTES,
        backlog=BACKLOG,
        server_header=False,
        log_level="error",  # uvicorn logs a non-JSON warning for every malformed request
        **given,
    )


def raised_file_limit() -> int:
    """Raise this process's limit of descriptors to the allowed maximum; returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft

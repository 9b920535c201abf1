# SPDX-License-Identifier: Apache-2.0
"""Serves `/metrics`, `/healthz` and `/readyz` of a verifier, in separate threads.

A connection serves one request and is closed after TIMEOUT_S at the latest; with too many, the oldest is closed.
"""

from __future__ import annotations

import io
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cloud_verifier.errors import VerifierError

TIMEOUT_S = 5.0
"""Time to read and answer a request."""
POLL_S = 0.05
"""How soon the server notices that it is to stop."""
MOST_CONNECTIONS = 32
HEAD_BYTES = 16_384


class BoundedServer(ThreadingHTTPServer):
    """An HTTP server with one thread per connection, for at most MOST_CONNECTIONS connections."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)
        self._open: deque[socket.socket] = deque()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a new thread, closing the oldest one if there are too many."""
        with self._lock:
            oldest = self._open.popleft() if len(self._open) >= MOST_CONNECTIONS else None
            self._open.append(request)
        if oldest is not None:
            _end(oldest)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Runs in the connection's thread; a timer ends it."""
        clock = threading.Timer(TIMEOUT_S, _end, (request,))
        clock.daemon = True
        clock.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            clock.cancel()
            with self._lock, suppress(ValueError):
                self._open.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: the client is gone, or was disconnected."""


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Head(io.BufferedIOBase):
    """Limits what is read of a request's head to HEAD_BYTES."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, HEAD_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line of the request's head; empty once the limit is reached."""
        line: bytes = self._stream.readline(min(self._left, size if size and size > 0 else self._left))
        self._left -= len(line)
        return line


def check_can_serve(bind: str) -> None:
    """Raise VerifierError if a status server cannot listen on HOST:PORT now."""
    _bound(bind, BaseHTTPRequestHandler).server_close()


def _bound(bind: str, handler: type[BaseHTTPRequestHandler]) -> BoundedServer:
    host, _, port = bind.rpartition(":")
    try:
        return BoundedServer((host.strip("[]") or "127.0.0.1", int(port)), handler)
    except (OSError, ValueError, OverflowError) as error:
        raise VerifierError(
            f"metrics cannot be served on {bind!r} ({error}): choose a free HOST:PORT with --metrics"
        ) from error


class StatusServer:
    """Serves until close()."""

    def __init__(
        self,
        bind: str,
        metrics: Callable[[], bytes],
        healthy: Callable[[], str],
        ready: Callable[[], str],
        more: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        """Start serving.

        Args:
            bind: HOST:PORT.
            metrics: The page /metrics.
            healthy: Called on each request; "" if all is well, else what is wrong.
            ready: Like healthy.
            more: JSON pages by path.

        Raises:
            VerifierError: The address cannot be used.
        """
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, metrics()),
            "/healthz": lambda: _verdict(healthy()),
            "/readyz": lambda: _verdict(ready()),
        }
        also = dict(more or {})

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S

            def setup(self) -> None:
                super().setup()
                self.rfile = Head(self.rfile)

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                page, kind = pages.get(path), "text/plain; version=0.0.4; charset=utf-8"
                code, body = (
                    page() if page else (404, f"choose one of {', '.join([*pages, *also])}\n".encode())
                )
                if path in also:
                    code, body, kind = 200, also[path](), "application/json"
                self.reply(code, body, kind)

            do_HEAD = do_GET

            def reply(self, code: int, body: bytes, kind: str) -> None:
                self.send_response(code)
                if code == 405:
                    self.send_header("Allow", "GET, HEAD")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                """The library's own would be HTML, and 501 for a method that exists."""
                said = self.responses[code][0] if message is None else message
                self.reply(405 if code == 501 else code, f"{said}\n".encode(), "text/plain; charset=utf-8")

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: a scrape every few seconds would fill the log."""

        self._server = _bound(bind, Handler)
        at, number = self._server.server_address[:2]
        self.bind = f"[{at!s}]:{number}" if self._server.address_family == socket.AF_INET6 else f"{at!s}:{number}"
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(POLL_S,), name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _verdict(wrong: str) -> tuple[int, bytes]:
    return (503, f"{wrong}\n".encode()) if wrong else (200, b"ok\n")

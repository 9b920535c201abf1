"""`/metrics`, `/healthz` and `/readyz` of a verifier, answered by a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloud_verifier.errors import VerifierError

TIMEOUT_S = 5.0
"""A client that asks and does not go on is left."""


class StatusServer:
    """Serves until close(). healthy, ready: asked on every look; the text says why not."""

    def __init__(
        self,
        bind: str,
        metrics: Callable[[], bytes],
        healthy: Callable[[], str],
        ready: Callable[[], str],
        more: Mapping[str, Callable[[], bytes]] | None = None,
    ) -> None:
        """bind: HOST:PORT. healthy, ready: "" where all is well, else what is wrong. more: pages of JSON by their path.

        Raises VerifierError where the address cannot be used.
        """
        host, _, port = bind.rpartition(":")
        pages: dict[str, Callable[[], tuple[int, bytes]]] = {
            "/metrics": lambda: (200, metrics()),
            "/healthz": lambda: _verdict(healthy()),
            "/readyz": lambda: _verdict(ready()),
        }
        also = dict(more or {})

        class Handler(BaseHTTPRequestHandler):
            timeout = TIMEOUT_S

            def do_GET(self) -> None:
                path = self.path.split("?")[0]
                page, kind = pages.get(path), "text/plain; version=0.0.4; charset=utf-8"
                code, body = page() if page else (404, f"there are {', '.join([*pages, *also])}\n".encode())
                if path in also:
                    code, body, kind = 200, also[path](), "application/json"
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: a scrape every few seconds would fill the log."""

        try:
            self._server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
        except (OSError, ValueError, OverflowError) as error:
            raise VerifierError(
                f"metrics cannot be served on {bind!r} ({error}): choose a free HOST:PORT with --metrics"
            ) from error
        self._server.daemon_threads = True
        self.bind = f"{self._server.server_address[0]!s}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _verdict(wrong: str) -> tuple[int, bytes]:
    return (503, f"{wrong}\n".encode()) if wrong else (200, b"ok\n")

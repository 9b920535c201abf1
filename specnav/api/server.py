# SPDX-License-Identifier: Apache-2.0
"""The listening socket, and a server that handles signals and logs its address."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from specdec.signals import unless_ignored
from specnav.api.config import host_and_port
from specnav.bounded_http import WAITING, bounded_config
from specnav.errors import UsageError

_KEEP_ALIVE_S = 75
"""An idle connection is closed after this long: longer than proxies keep theirs."""
_LAST_S = 2.0
"""Connections close this long after all answers were ended, even if a client neither sends its request nor reads."""


def listen(bind: str) -> socket.socket:
    """A socket listening at HOST:PORT. Raises UsageError."""
    host, port = host_and_port(bind)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Name TCP explicitly: asyncio sets TCP_NODELAY only if it sees that protocol.
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(WAITING)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {bind} ({error.strerror or error}): choose a free HOST:PORT with --bind"
        ) from error
    return found


def address_of(listening: socket.socket) -> str:
    """The base URL for clients, without a path."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ApiServer(uvicorn.Server):
    """SIGTERM lets running answers end within drain_s; SIGINT, SIGHUP (terminal closed; under nohup it stays ignored),
    or a second signal, ends them at once.

    uvicorn's own time limit is not used: it cancels requests, and their clients get a status 500 or half a stream.
    """

    def __init__(
        self,
        app: FastAPI,
        drain_s: float,
        ready: Callable[[], None],
        drain: Callable[[], None],
        stop: Callable[[], None],
        own_files: int = 64,
    ) -> None:
        """ready: called when requests are accepted. drain: called to accept no more requests. stop: called to end all
        answers. own_files: descriptors that the process needs besides connections.
        """
        config = bounded_config(
            app,
            own_files,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        super().__init__(config)
        self._drain_s = drain_s
        self._ready, self._drain, self._stop = ready, drain, stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then call `ready`."""
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(WAITING)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but answers that are still running after drain_s are told so."""
        self._loop.call_later(self._drain_s, self._end_answers)
        await super().shutdown(sockets)

    def _end_answers(self) -> None:
        self._stop()
        self._loop.call_later(_LAST_S, self._close_connections)

    def _close_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Like uvicorn's, except that the process ends with exit code 0, as the verifier does."""
        self._loop = asyncio.get_running_loop()
        numbers = unless_ignored((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self._drain()
        if sig != signal.SIGTERM or self.should_exit:
            self._loop.call_soon_threadsafe(self._end_answers)
        self.should_exit = True

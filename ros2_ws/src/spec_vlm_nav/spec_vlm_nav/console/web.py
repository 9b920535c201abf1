# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The web server of the console: one page and one socket. Needs starlette, uvicorn and websockets.

It listens on a Unix socket. The front (`front`, a separate process) holds the network sockets and
handles STOP itself. All of the page's files come from this package, and its Content-Security-Policy
forbids anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
import contextlib
from dataclasses import dataclass
import json
from pathlib import Path
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.console.access import (
    AccessRole,
    AccessTokens,
    check_origin,
    find_token,
    is_loopback,
    MessageBucket,
    Token,
)
from spec_vlm_nav.console.pages import Page, Pages
from spec_vlm_nav.console.words import LARGEST_MESSAGE, understood
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect
import uvicorn

PAGE = Path(__file__).parent / "page"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
LOOK_S, START_S = 0.5, 30.0
LONGEST_NAME = 255  # of a ROS namespace
FRONT = ("-m", "spec_vlm_nav.ros.console.front_process")
TRIES, TRY_BURST = 0.2, 5.0  # wrong tokens per second, all addresses together
WRONG, FULL, FORBIDDEN = 4401, 4429, 4403


class _PageFiles(StaticFiles):
    """The page's own files."""

    def file_response(self, *given: Any, **more: Any) -> Response:
        response = super().file_response(*given, **more)
        response.headers.update(HEADERS)
        return response


@dataclass(frozen=True)
class WebConfig:
    """Where to listen, and the limits of connections."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: str = ""
    key: str = ""
    max_pages: int = 16
    head_s: float = 5.0  # time limit for a request's headers and for a page's hello
    front: tuple[str, ...] = FRONT  # Python arguments that start the front
    arguments: tuple[str, ...] = ()  # ROS arguments for the front
    published_on_loopback: bool = False

    @property
    def most_viewers(self) -> int:
        """Return how many pages viewers may open; the rest is reserved for operators."""
        return max(1, self.max_pages - max(1, self.max_pages // 4))

    @property
    def is_local(self) -> bool:
        """Return whether only this machine can reach the console."""
        return is_loopback(self.host) or self.published_on_loopback


class Web:
    """The server, in a background thread. Raises ConsoleError if it cannot listen."""

    def __init__(
        self,
        config: WebConfig,
        pages: Pages,
        tokens: AccessTokens,
        complain: Callable[[str], None] = lambda words: None,
    ) -> None:
        """complain: called with a description of a problem."""
        self._config, self._pages, self._tokens = config, pages, tokens
        self._complain, self._tries = complain, MessageBucket(TRIES, TRY_BURST)
        self._check_certificate()
        listening = _listen(config)
        self.port = int(listening.getsockname()[1])
        scheme = "https" if config.certificate else "http"
        host = f"[{config.host}]" if ":" in config.host else config.host
        self.url = f"{scheme}://{host}:{self.port}/"
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app(),
                log_level="error",  # a warning for every malformed request would fill the log
                http="h11",
                ws="websockets-sansio",
                ws_max_size=LARGEST_MESSAGE,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=1,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self.failure: ConsoleError | None = None
        self._closing, self._is_ready = False, threading.Event()
        self._tell: asyncio.StreamWriter | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="spec_vlm_nav_console_"))  # mode 0700
        self._behind = socket.socket(socket.AF_UNIX)
        self._behind.bind(str(self._folder / "pages"))
        self._behind.listen(128)
        self._control, theirs = socket.socketpair()
        with listening, theirs:
            numbers = [listening.fileno(), theirs.fileno()]
            self._front = subprocess.Popen(
                [sys.executable, *config.front, *map(str, numbers), *config.arguments],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
            )
        self._thread = threading.Thread(target=self._run, name="console web", daemon=True)
        self._thread.start()
        self._is_ready.wait(START_S)
        if self._tell is None or self.failure is not None or not self._is_ready.is_set():
            self.close()
            raise self.failure or ConsoleError("the console's front process did not start")

    def _check_certificate(self) -> None:
        c = self._config
        if not c.certificate:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(c.certificate, c.key or None)
        except (OSError, ssl.SSLError) as error:
            said = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise ConsoleError(
                f"certificate {c.certificate} and key {c.key or c.certificate} cannot be used: {said}"
            ) from error

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._behind]))

    def close(self) -> None:
        """End the server."""
        self._closing = True
        self._server.should_exit = True
        self._thread.join(3.0)
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._front.wait(1.0)
        self._front.kill()
        self._front.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- the front

    async def _hear_front(self) -> None:
        """Handle the front's messages until it ends; that is a failure, as STOP no longer works."""
        hear, self._tell = await asyncio.open_connection(sock=self._control)
        config = self._config
        self._say(
            {
                "behind": str(self._folder / "pages"),
                "loopback": config.is_local,
                "certificate": config.certificate,
                "key": config.key,
                "max_pages": config.max_pages,
                "head_s": config.head_s,
            }
        )
        self._say_tokens()
        looking = asyncio.create_task(self._look_after())
        with contextlib.suppress(ConnectionError):
            while line := await hear.readline():
                said = json.loads(line)
                if "ready" in said:
                    self._is_ready.set()
                elif "stop" in said:
                    self._pages.stopped(said)
                else:
                    self._pages.stopped_by_post(said)
        looking.cancel()
        if not self._closing:
            self.failure = ConsoleError("the console's front process has ended: restart the console")
        self._is_ready.set()

    def _say(self, what: dict[str, Any]) -> None:
        if self._tell is not None:
            self._tell.write(json.dumps(what).encode() + b"\n")

    def _say_tokens(self) -> None:
        known = self._tokens.known
        rows = None if known is None else [(t.name, t.role.value, t.sha256) for t in known]
        self._say({"tokens": rows})

    async def _look_after(self) -> None:
        """Keep the front's list of robots current, and close pages whose token was revoked."""
        told: list[str] | None = None
        while True:
            if (names := self._pages.robot_names()) != told:
                told = names
                self._say({"robots": names})
            wrong = await asyncio.to_thread(self._tokens.look)
            if wrong is not None:
                if wrong:
                    self._complain(wrong)
                self._say_tokens()
                for page in self._pages.all():
                    if page.token not in (self._tokens.known or ()) and not self._is_open:
                        page.end(WRONG, "this token was revoked")
            await asyncio.sleep(LOOK_S)

    @property
    def _is_open(self) -> bool:
        return self._tokens.known is None

    # -- the page

    def _app(self) -> Starlette:
        @contextlib.asynccontextmanager
        async def life(app: Starlette) -> AsyncIterator[None]:
            tasks = [asyncio.create_task(work) for work in (self._pages.watch(), self._hear_front())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

        routes: list[Any] = [
            Route("/healthz", self._health),
            Route("/file/{ticket}", self._file_of),
            WebSocketRoute("/socket", self._socket_of),
            Mount("/", _PageFiles(directory=PAGE, html=True)),
        ]
        return Starlette(routes=routes, lifespan=life)

    async def _health(self, request: Request) -> Response:
        told = {"pages": self._pages.count, "robots": self._pages.robots_heard}
        return JSONResponse(told, headers=HEADERS)

    async def _file_of(self, request: Request) -> Response:
        path = self._pages.shelf.redeem(request.path_params["ticket"], time.monotonic())
        if path is None or not path.is_file():
            return JSONResponse({"error": "ask for this file again"}, 404, headers=HEADERS)
        return FileResponse(path, filename=path.name, headers=HEADERS)

    # -- the socket

    async def _socket_of(self, ws: WebSocket) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):  # it left
            await self._serve_socket(ws)

    async def _serve_socket(self, ws: WebSocket) -> None:
        bound = self._config.is_local
        wrong = check_origin(ws.headers.get("origin"), ws.headers.get("host"), bound)
        if wrong:
            await ws.close(FORBIDDEN, wrong)
            return
        await ws.accept()
        who = await self._enter(ws)
        if who is None:
            return
        name, role, token, robot = who
        if not self._make_room(role):
            await _closed(ws, FULL, "too many pages are open")
            return
        where = ws.headers.get("x-front-client", "?")
        page = self._pages.open(name, role, where, ws.send_text, robot)  # type: ignore[arg-type]
        page.connection, page.token = int(ws.headers.get("x-front-connection", "0")), token
        ending: set[asyncio.Task[None]] = set()
        page.end = lambda code, why: ending.add(asyncio.create_task(_closed(ws, code, why)))
        page.on_look = lambda: self._say({"page": page.connection, "robot": page.robot})
        page.on_look()
        sender = asyncio.create_task(_send(ws, page))
        try:
            await self._receive(ws, page)
        finally:
            sender.cancel()
            self._pages.close(page)

    def _make_room(self, role: AccessRole) -> bool:
        """Return whether one more page fits; for an operator the newest viewer is closed."""
        pages = self._pages.all()
        viewers = [page for page in pages if page.role is AccessRole.VIEWER]
        if role is AccessRole.VIEWER:
            most = self._config.most_viewers
            return len(pages) < self._config.max_pages and len(viewers) < most
        if len(pages) >= self._config.max_pages and viewers:
            viewers[-1].end(FULL, "an operator needed this place")
            return True
        return len(pages) < self._config.max_pages

    async def _enter(self, ws: WebSocket) -> tuple[str, AccessRole, Token | None, str | None] | None:
        """
        Return name, role, token and robot from the first message; None if the socket was closed.

        The robot is the one that the page showed before it lost its connection; None: it showed none.
        """
        try:
            said = understood(await asyncio.wait_for(ws.receive_text(), self._config.head_s))
        except (asyncio.TimeoutError, WebSocketDisconnect, KeyError):
            said = None
        if said is None:
            await _closed(ws, WRONG, "the first message must be a hello")
            return None
        name, robot = " ".join(str(said.get("name", "")).split())[:40], said.get("robot")
        robot = robot if isinstance(robot, str) and len(robot) <= LONGEST_NAME else None
        if self._is_open:
            return name or "operator", AccessRole.OPERATOR, None, robot  # only on loopback: see check_binding
        token = find_token(self._tokens.known or (), str(said.get("token", "")))
        if token is not None:
            return token.name, token.role, token, robot
        loop = asyncio.get_running_loop()
        if not self._tries.take(loop.time()):
            await asyncio.sleep(2.0)
        await _closed(ws, WRONG, "this token is unknown")
        return None

    async def _receive(self, ws: WebSocket, page: Page) -> None:
        while True:
            try:
                message = understood(await ws.receive_text())
            except KeyError:  # bytes
                message = None
            if message is None:
                page.tell("no", to="", why="a message must be a JSON object of plain values")
            else:
                self._pages.take(page, message)
            await asyncio.sleep(0)  # let other tasks run before the next message


async def _send(ws: WebSocket, page: Page) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            message = await page.outbox.get()
            if isinstance(message, bytes):
                await ws.send_bytes(message)
            else:
                await ws.send_text(message)


async def _closed(ws: WebSocket, code: int, why: str) -> None:
    with contextlib.suppress(RuntimeError, WebSocketDisconnect, OSError):
        await ws.close(code, why)


def _listen(config: WebConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
        listening.listen(128)  # at once, so that clients can connect when the log says ready
    except (OSError, OverflowError) as error:
        listening.close()
        said = getattr(error, "strerror", None) or error
        raise ConsoleError(
            f"the console cannot listen on {config.host}:{config.port}: {said}; give another host or port"
        ) from error
    return listening

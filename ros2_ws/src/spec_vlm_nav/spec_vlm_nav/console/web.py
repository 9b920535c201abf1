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

The page comes from this package alone: nothing is fetched from elsewhere, and its policy forbids
that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
import contextlib
from dataclasses import dataclass
from pathlib import Path
import socket
import ssl
import threading
import time
from typing import Any

from spec_vlm_nav.common.errors import ConsoleError
from spec_vlm_nav.console.access import (
    Bucket,
    check_origin,
    find_token,
    is_loopback,
    Role,
    Token,
)
from spec_vlm_nav.console.pages import Page, Pages
from spec_vlm_nav.console.words import STOPPING, understood
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
import uvicorn

PAGE = Path(__file__).parent / 'page'
FILES = {
    '': ('index.html', 'text/html; charset=utf-8'),
    'console.css': ('console.css', 'text/css; charset=utf-8'),
    'console.js': ('console.js', 'text/javascript; charset=utf-8'),
    'extras.js': ('extras.js', 'text/javascript; charset=utf-8'),
    'cards.js': ('cards.js', 'text/javascript; charset=utf-8'),
    'map.js': ('map.js', 'text/javascript; charset=utf-8'),
    'link.js': ('link.js', 'text/javascript; charset=utf-8'),
}
HEADERS = {
    'Content-Security-Policy': (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; "
        "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cache-Control': 'no-cache',
}
LARGEST_MESSAGE, HELLO_S, MESSAGES_A_S = 256_000, 5.0, 60.0
TRIES, TRY_BURST = 0.2, 5.0  # wrong tokens a second, of all addresses together
WRONG, FULL, FORBIDDEN = 4401, 4429, 4403


@dataclass(frozen=True)
class WebConfig:
    """Where to listen and who may come."""

    host: str = '127.0.0.1'
    port: int = 0
    certificate: str = ''
    key: str = ''
    tokens: tuple[Token, ...] = ()
    max_pages: int = 16


class Web:
    """The server, in a thread of its own. Raises ConsoleError where it cannot listen."""

    def __init__(self, config: WebConfig, pages: Pages) -> None:
        self._config, self._pages = config, pages
        self._tries = Bucket(TRIES, TRY_BURST)
        self._check_certificate()
        self._socket = _listen(config)
        self.port = int(self._socket.getsockname()[1])
        scheme = 'https' if config.certificate else 'http'
        host = f'[{config.host}]' if ':' in config.host else config.host
        self.url = f'{scheme}://{host}:{self.port}/'
        given: dict[str, Any] = {}
        if config.certificate:
            given = {'ssl_certfile': config.certificate, 'ssl_keyfile': config.key or None}
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app(),
                log_level='warning',
                ws='websockets-sansio',
                ws_max_size=LARGEST_MESSAGE,
                ws_per_message_deflate=False,
                timeout_graceful_shutdown=1,
                server_header=False,
                **given,
            )
        )
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._run, name='console web', daemon=True)
        self._thread.start()

    def _check_certificate(self) -> None:
        c = self._config
        if not c.certificate:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(c.certificate, c.key or None)
        except (OSError, ssl.SSLError) as error:
            said = getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error
            raise ConsoleError(
                f'certificate {c.certificate} and key {c.key or c.certificate} cannot be used: '
                f'{said}'
            ) from error

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def close(self) -> None:
        """End the server."""
        self._server.should_exit = True
        self._thread.join(3.0)
        self._socket.close()

    # -- the page

    def _app(self) -> Starlette:
        @contextlib.asynccontextmanager
        async def life(app: Starlette) -> AsyncIterator[None]:
            watch = asyncio.create_task(self._pages.watch())
            try:
                yield
            finally:
                watch.cancel()

        routes: list[Any] = [
            Route(f'/{path}', self._file(name, kind)) for path, (name, kind) in FILES.items()
        ]
        routes += [
            Route('/healthz', self._health),
            Route('/file/{ticket}', self._file_of),
            Route('/stop', self._stop, methods=['POST']),
            WebSocketRoute('/socket', self._socket_of),
        ]
        return Starlette(routes=routes, lifespan=life)

    def _file(self, name: str, kind: str) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            return FileResponse(PAGE / name, media_type=kind, headers=HEADERS)

        return serve

    async def _health(self, request: Request) -> Response:
        return JSONResponse({'pages': self._pages.count}, headers=HEADERS)

    async def _file_of(self, request: Request) -> Response:
        path = self._pages.shelf.redeem(request.path_params['ticket'], time.monotonic())
        if path is None or not path.is_file():
            return JSONResponse({'error': 'ask for this file again'}, 404, headers=HEADERS)
        return FileResponse(path, filename=path.name, headers=HEADERS)

    async def _stop(self, request: Request) -> Response:
        """Stop a robot without a socket: a page whose socket is gone tries this, too."""
        wrong = check_origin(
            request.headers.get('origin'),
            request.headers.get('host'),
            is_loopback(self._config.host),
        )
        if wrong:
            return JSONResponse({'error': wrong}, 403, headers=HEADERS)
        clear, name = request.headers.get('x-token', ''), request.headers.get('x-robot', '')
        token = find_token(self._config.tokens, clear) if self._config.tokens else None
        if self._config.tokens and token is None:
            return JSONResponse({'error': 'this token is not known here'}, 401, headers=HEADERS)
        where = request.client.host if request.client else '?'
        who, role = (token.name, token.role) if token else ('operator', Role.OPERATOR)
        if not self._pages.stop_by_post(who, role, where, name):
            return JSONResponse({'error': 'this robot is not there'}, 404, headers=HEADERS)
        return JSONResponse({'stop': 'sent'}, headers=HEADERS)

    # -- the socket

    async def _socket_of(self, ws: WebSocket) -> None:
        bound = is_loopback(self._config.host)
        wrong = check_origin(ws.headers.get('origin'), ws.headers.get('host'), bound)
        if wrong:
            await ws.close(FORBIDDEN, wrong)
            return
        await ws.accept()
        where = ws.client.host if ws.client else '?'
        who = await self._enter(ws)
        if who is None:
            return
        if self._pages.count >= self._config.max_pages:
            await ws.close(FULL, 'too many pages are open')
            return
        page = self._pages.open(who[0], who[1], where, ws.send_text)  # type: ignore[arg-type]
        sender = asyncio.create_task(_send(ws, page))
        try:
            await self._receive(ws, page)
        except (WebSocketDisconnect, RuntimeError):
            pass
        finally:
            sender.cancel()
            self._pages.close(page)

    async def _enter(self, ws: WebSocket) -> tuple[str, Role] | None:
        """Return who it is, after the first message; None when the socket was closed."""
        try:
            said = understood(await asyncio.wait_for(ws.receive_text(), HELLO_S))
        except (asyncio.TimeoutError, WebSocketDisconnect, KeyError):
            said = None
        if said is None:
            await _closed(ws, WRONG, 'say hello first')
            return None
        name = ' '.join(str(said.get('name', '')).split())[:40]
        clear = str(said.get('token', ''))
        if not self._config.tokens:
            return name or 'operator', Role.OPERATOR  # loopback alone: checked when it was bound
        token = find_token(self._config.tokens, clear)
        if token is not None:
            return token.name, token.role
        loop = asyncio.get_running_loop()
        if not self._tries.take(loop.time()):
            await asyncio.sleep(2.0)
        await _closed(ws, WRONG, 'this token is not known here')
        return None

    async def _receive(self, ws: WebSocket, page: Page) -> None:
        loop, limit = asyncio.get_running_loop(), Bucket(MESSAGES_A_S, 2 * MESSAGES_A_S)
        while True:
            try:
                message = understood(await ws.receive_text())
            except KeyError:  # bytes
                message = None
            if message is None:
                page.tell('no', to='', why='not understood: an object of plain values is wanted')
            if not limit.take(loop.time()) and (message or {}).get('t') not in STOPPING:
                await asyncio.sleep(1 / MESSAGES_A_S)
            if message is not None:
                self._pages.take(page, message)


async def _send(ws: WebSocket, page: Page) -> None:
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        while True:
            message = await page.outbox.get()
            if isinstance(message, bytes):
                await ws.send_bytes(message)
            else:
                await ws.send_text(message)


async def _closed(ws: WebSocket, code: int, why: str) -> None:
    with contextlib.suppress(RuntimeError):
        await ws.close(code, why)


def _listen(config: WebConfig) -> socket.socket:
    family = socket.AF_INET6 if ':' in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((config.host, config.port))
        listening.listen(128)  # now: whoever reads that the console is ready may come at once
    except (OSError, OverflowError) as error:
        listening.close()
        said = getattr(error, 'strerror', None) or error
        raise ConsoleError(
            f'the console cannot listen on {config.host}:{config.port}: {said}; '
            'give another host or port'
        ) from error
    return listening

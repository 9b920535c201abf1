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
The front of the console: a process that holds every network socket and publishes STOP.

A page's STOP goes from its socket to the topic in this process, whatever the console is doing.
Everything else is forwarded to the console's web server over a Unix socket: HTTP requests and whole
WebSocket messages. The console tells the front which connections are pages, which robot each page
shows and which tokens are valid; the front reports each STOP. All resources of a connection are
bounded; one that exceeds its bounds affects only itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
import contextlib
from dataclasses import dataclass, field
from functools import lru_cache
import itertools
import json
import os
import re
import resource
import signal
import socket
import ssl
from typing import Any

import h11
from spec_vlm_nav.common.signals import ENDING
from spec_vlm_nav.console.access import AccessRole, check_origin, find_token, MessageBucket, Token
from spec_vlm_nav.console.connection_queue import ConnectionQueue
from spec_vlm_nav.console.words import LARGEST_MESSAGE, LONGEST_WORDS, STOPPING, understood
from spec_vlm_nav.language.stop_words import is_stop
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader as Received

HEAD_BYTES = 16_384
CHUNK, READ_ON = 4096, 64  # bytes per read; messages after which other connections are served
FRAMES_A_S, BYTES_A_S = 200.0, 500_000.0  # read from one page; the rest waits
REQUESTS_A_S = 50.0  # HTTP requests forwarded, all connections together; the rest waits
PASSED_A_S = 60.0  # messages forwarded from one page; the rest is dropped
TEXTS_A_S = 20.0  # texts of one page (long ones count more); the rest is dropped
SAID_AT_ONCE = 200  # longest text checked for stop words here; the console checks longer ones
LOOKED_AT, MOST_PARTS = 16_384, 1000  # bytes always parsed; most frames of a message
HELD_BACK = 2_000_000  # most bytes buffered for a console that does not read
STUCK_S = 60.0  # a page that reads nothing for this long is closed
MOST_OTHERS = 64  # connections that are not pages (yet)
SPARE_FILES = 64
BACKLOG = 1024  # connections waiting in the kernel while the front is busy
OWN_HEADERS = (b"x-front-connection", b"x-front-client")
NOT_PASSED = (
    *OWN_HEADERS, b"connection", b"keep-alive", b"transfer-encoding", b"content-length",
    b"expect", b"sec-websocket-extensions",
)  # fmt: skip
_STOP_SOMEWHERE = re.compile(rb'"t"\s*:\s*"e?stop"')
_look_at = lru_cache(512)(is_stop)
Publish = Callable[[str, str], bool]


@dataclass(eq=False)
class Connection:
    """One connection. robots: the robots that its STOP stops; None until the page is admitted."""

    number: int
    writer: asyncio.StreamWriter
    where: str
    robots: tuple[str, ...] | None = None
    frames: MessageBucket = field(default_factory=lambda: MessageBucket(FRAMES_A_S, 10 * FRAMES_A_S))
    bytes: MessageBucket = field(default_factory=lambda: MessageBucket(BYTES_A_S, 2 * BYTES_A_S))
    passed: MessageBucket = field(default_factory=lambda: MessageBucket(PASSED_A_S, 2 * PASSED_A_S))
    texts: MessageBucket = field(default_factory=lambda: MessageBucket(TEXTS_A_S, 2 * TEXTS_A_S))


class Front:
    """
    Serves until the control socket closes.

    publish: called with a robot's name and "stop" or "estop"; returns whether it has a subscriber.
    meet: called with the robots' names when they change.
    """

    def __init__(self, control: socket.socket, publish: Publish, meet: Callable[[list[str]], None]) -> None:
        self._control, self._publish, self._meet = control, publish, meet
        self._numbers = itertools.count(1)
        self._others: dict[int, Connection] = {}  # oldest first
        self._pages: dict[int, Connection] = {}
        # The event loop refers to a task only weakly once its client is gone.
        self._serving: set[asyncio.Task[Any] | None] = set()
        self._asked = MessageBucket(REQUESTS_A_S, 4 * REQUESTS_A_S)
        self._tokens: tuple[Token, ...] | None = ()
        self._robots: list[str] = []
        self._tell: asyncio.StreamWriter | None = None
        self._behind, self._bound_to_loopback = "", True
        self._most_others, self._head_s = MOST_OTHERS, 5.0

    async def serve(self, listening: socket.socket) -> None:
        """Serve the connections of a listening socket."""
        hear, self._tell = await asyncio.open_connection(sock=self._control, limit=10_000_000)
        given = json.loads(await hear.readline())
        self._behind, self._bound_to_loopback = given["behind"], given["loopback"]
        self._most_others, self._head_s = _most_others(given["max_pages"]), given["head_s"]
        secured = None
        if given["certificate"]:
            secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            secured.load_cert_chain(given["certificate"], given["key"] or None)
        listening.setblocking(False)
        listening.listen(BACKLOG)
        coming = set[asyncio.Task[None]]()

        def welcome(one: socket.socket) -> None:
            task = asyncio.ensure_future(self._welcome(one, secured))
            coming.add(task)
            task.add_done_callback(coming.discard)

        queue = ConnectionQueue(
            listening, welcome, self._most_others, self._head_s, secured is not None, HEAD_BYTES
        )
        self._said({"ready": True})
        while line := await hear.readline():
            self._told(json.loads(line))
        queue.close()

    async def _welcome(self, one: socket.socket, secured: ssl.SSLContext | None) -> None:
        reader = asyncio.StreamReader(HEAD_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader, self._come)
        limit = {"ssl_handshake_timeout": self._head_s} if secured else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, one, ssl=secured, **limit
            )
        except (OSError, asyncio.TimeoutError):
            one.close()

    # -- messages to and from the console

    def _told(self, said: dict[str, Any]) -> None:
        if "tokens" in said:
            rows = said["tokens"]
            made = None if rows is None else tuple(Token(n, AccessRole(r), h) for n, r, h in rows)
            self._tokens = made
        if "robots" in said:
            self._robots = said["robots"]
            self._meet(self._robots)
        if "page" in said:
            number = said["page"]
            found = self._pages.get(number) or self._others.pop(number, None)
            if found is not None:
                found.robots = (said["robot"],)
                self._pages[number] = found

    def _said(self, what: dict[str, Any]) -> None:
        """Send a message to the console; it is dropped if the console does not read."""
        if self._tell is not None and self._tell.transport.get_write_buffer_size() < HELD_BACK:
            self._tell.write(json.dumps(what).encode() + b"\n")

    def _stop(self, names: tuple[str, ...], kind: str) -> bool:
        heard = [self._publish(name, kind) for name in names]
        return all(heard)

    # -- connections

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        one = Connection(next(self._numbers), writer, str(peer[0]) if peer else "?")
        while len(self._others) >= self._most_others:
            # The oldest is closed: it has not become a page for longest.
            self._others.pop(next(iter(self._others))).writer.transport.abort()
        self._others[one.number] = one
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            await self._answer(one, reader)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # closed by the peer, too slow, or the front ends
        finally:
            self._serving.discard(task)
            self._others.pop(one.number, None)
            self._pages.pop(one.number, None)
            with contextlib.suppress(Exception):
                writer.close()

    async def _answer(self, one: Connection, reader: asyncio.StreamReader) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._head_s)
        except asyncio.LimitOverrunError:
            await _reply(one, 431, f"a request has at most {HEAD_BYTES} bytes of headers")
            return
        parser = h11.Connection(h11.SERVER)
        try:
            parser.receive_data(head)
            request = parser.next_event()
        except h11.RemoteProtocolError:
            request = None
        if not isinstance(request, h11.Request):
            await _reply(one, 400, "must be an HTTP request")
        elif request.method == b"POST" and request.target.partition(b"?")[0] == b"/stop":
            await self._stop_by_post(one, {k.decode(): v for k, v in request.headers})
        elif request.method in (b"GET", b"HEAD"):
            await self._pass_on(one, reader, request)
        else:
            await _reply(one, 405, "GET, and POST to /stop")

    async def _stop_by_post(self, one: Connection, headers: dict[str, bytes]) -> None:
        """Handle POST /stop; a page uses it when its WebSocket is gone."""

        def header(name: str) -> str:
            return headers.get(name, b"").decode("utf-8", "replace")

        wrong = check_origin(header("origin"), header("host"), self._bound_to_loopback)
        name, token = header("x-robot"), None
        if not wrong and self._tokens is not None:
            token = find_token(self._tokens, header("x-token"))
            if token is None:
                await _reply(one, 401, "this token is unknown")
                return
        if wrong or name not in self._robots:
            await _reply(one, 403 if wrong else 404, wrong or "there is no such robot")
            return
        heard = self._stop((name,), "stop")
        who, role = (token.name, token.role) if token else ("operator", AccessRole.OPERATOR)
        told = {"who": who, "role": role.value, "where": one.where, "heard": heard}
        self._said({"posted": name, **told})
        await _reply(one, 200, "")

    async def _pass_on(self, one: Connection, reader: asyncio.StreamReader, request: h11.Request) -> None:
        """Forward a request to the console."""
        await _wait(self._asked.debt(asyncio.get_running_loop().time(), 1))
        upgrades = any(
            name == b"upgrade" and value.lower() == b"websocket" for name, value in request.headers
        )
        kept = [(n, v) for n, v in request.headers if n not in NOT_PASSED]
        kept += [
            (b"connection", b"Upgrade" if upgrades else b"close"),
            (b"x-front-connection", str(one.number).encode()),
            (b"x-front-client", one.where.encode()),
        ]
        lines = [request.method + b" " + request.target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in kept]
        behind, to_behind = await asyncio.wait_for(asyncio.open_unix_connection(self._behind), self._head_s)
        tasks = [asyncio.ensure_future(_pipe(behind, one.writer))]
        try:
            to_behind.write(b"\r\n".join((*lines, b"", b"")))
            if upgrades:
                tasks.append(asyncio.ensure_future(self._listen(one, reader, to_behind)))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            to_behind.close()
            await asyncio.gather(*tasks, return_exceptions=True)  # each error is looked at

    # -- a page's messages

    async def _listen(
        self, one: Connection, reader: asyncio.StreamReader, behind: asyncio.StreamWriter
    ) -> None:
        """Read a page's messages: STOP is handled here, the others are forwarded."""
        loop, received = asyncio.get_running_loop(), Received()
        parsing, since = _next_frame(received), 0
        parts, size = list[Frame](), 0
        while data := await reader.read(CHUNK):
            received.feed_data(data)
            await _wait(one.bytes.debt(loop.time(), len(data)))
            while True:
                try:
                    next(parsing)
                    break  # the frame is incomplete
                except StopIteration as found:
                    frame: Frame = found.value
                except (PayloadTooBig, ProtocolError):
                    return
                parsing = _next_frame(received)
                since += 1
                if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                    parts.append(frame)
                    size += len(frame.data)
                    if size > LARGEST_MESSAGE or len(parts) > MOST_PARTS:
                        return
                    if frame.fin:
                        kind, whole = parts[0].opcode, b"".join(bytes(p.data) for p in parts)
                        parts, size = [], 0
                        if kind is Opcode.TEXT:  # invalid bytes must not hide a stop
                            whole = whole.decode(errors="replace").encode()
                        self._take(one, Frame(kind, whole), behind, loop.time())
                        since += len(whole) // 100
                else:
                    _send(behind, frame)
                await _wait(one.frames.debt(loop.time(), 1))
                if since >= READ_ON:
                    since = 0
                    await asyncio.sleep(0)

    def _take(self, one: Connection, frame: Frame, behind: asyncio.StreamWriter, now: float) -> None:
        said = _read(bytes(frame.data)) if frame.opcode is Opcode.TEXT else None
        kind = str((said or {}).get("t", ""))
        how = ""
        words = str(said.get("text", "")) if said and kind in ("heard", "say") else ""
        if words and not one.texts.take(now, 1 + len(words[:LONGEST_WORDS]) / SAID_AT_ONCE):
            return  # faster than anyone can type or speak
        if 0 < len(words) <= SAID_AT_ONCE and _look_at(words):
            how, kind = "spoken" if kind == "heard" else "typed", "stop"
        if said is not None and kind in STOPPING and one.robots is not None:
            heard = self._stop(one.robots, kind)
            number = "" if how else str(said.get("id", ""))[:40]
            how = how or str(said.get("how", ""))[:40]
            told = {"kind": kind, "id": number, "how": how, "heard": heard}
            self._said({"stop": one.number, **told})
            return
        if kind == "look" and said is not None and one.robots is not None:
            # Until the console confirms the switch, a STOP is sent to both robots.
            name = str(said.get("robot", ""))
            if name in self._robots:
                one.robots = (*one.robots[:1], name)
        if kind in STOPPING or one.passed.take(now):
            _send(behind, frame)


def _read(data: bytes) -> dict[str, Any] | None:
    if len(data) > LOOKED_AT and not _STOP_SOMEWHERE.search(data):
        return None
    return understood(data.decode())


def _next_frame(received: Received) -> Generator[None, None, Frame]:
    return Frame.parse(received.read_exact, mask=True, max_size=LARGEST_MESSAGE)


def _send(behind: asyncio.StreamWriter, frame: Frame) -> None:
    """Forward a message; it is dropped if the console does not read, so that STOP stays possible."""
    if behind.transport.get_write_buffer_size() < HELD_BACK:
        behind.write(frame.serialize(mask=True))


async def _wait(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(min(seconds, 1.0))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward the console's data at the speed of the page."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await asyncio.wait_for(writer.drain(), STUCK_S)


async def _reply(one: Connection, status: int, why: str) -> None:
    body = json.dumps({"error": why} if why else {"stop": "sent"}).encode()
    words = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden"}.get(status, "")
    one.writer.write(
        f"HTTP/1.1 {status} {words}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\n"
        "cache-control: no-cache\r\nconnection: close\r\n\r\n".encode()
        + body
    )
    await asyncio.wait_for(one.writer.drain(), STUCK_S)


def _most_others(pages: int) -> int:
    """
    Return how many connections besides the pages the file descriptor limit allows.

    Each needs two descriptors; the queue's silent and waiting connections need two more.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    there = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if there == resource.RLIM_INFINITY:
        return MOST_OTHERS
    return max(8, min(MOST_OTHERS, (there - SPARE_FILES - 2 * pages) // 4))


def run_front(listening: int, control: int, publish: Publish, meet: Callable[[list[str]], None]) -> None:
    """Serve on inherited descriptors until the console ends; signals that end a node are ignored."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(PermissionError):
        os.nice(-10)  # if permitted: STOP has priority over other processes
    front = Front(socket.socket(fileno=control), publish, meet)
    with contextlib.suppress(ConnectionError):
        asyncio.run(front.serve(socket.socket(fileno=listening)))

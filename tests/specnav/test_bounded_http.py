"""What strangers may do to a server of ours over HTTP/1.1: a client that asks properly is answered meanwhile."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn

import specnav.api.server
from specnav import bounded_http
from specnav.api.server import ApiServer
from specnav.bounded_http import bounded_config


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Says how long the body was; /stream: much more than anybody reads; /early: without reading the body."""
    size, more = 0, scope["path"] != "/early"
    while more:
        part = await receive()
        size, more = size + len(part.get("body", b"")), part.get("more_body", False)
    streams = scope["path"] == "/stream"
    told = [] if streams else [(b"content-length", str(len(str(size))).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": told})
    for _ in range(2000 if streams else 0):
        await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
    await send({"type": "http.response.body", "body": str(size).encode()})


class Server:
    """Serves in a thread; limits are those of now."""

    def __init__(self, most: int | None = None) -> None:
        config = bounded_config(app, own_files=32, lifespan="off", log_config=None)
        if most is not None:
            config.http.most_connections = most  # type: ignore[union-attr]
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self._listening]}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self._thread.join(5)
        self._listening.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, 5)

    def ask(self, body: bytes = b"") -> bytes:
        with self.connect() as asking:
            asking.sendall(
                b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            )
            asking.sendall(body)
            return b"".join(iter(lambda: asking.recv(65_536), b""))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_S", 0.2)
    monkeypatch.setattr(bounded_http, "BODY_S", 0.2)
    monkeypatch.setattr(bounded_http, "STUCK_S", 0.2)


@pytest.fixture
def server(quick: None) -> Iterator[Server]:
    serving = Server()
    yield serving
    serving.close()


def is_closed(one: socket.socket) -> bool:
    """Whether the other side closes within two seconds; what it says before is read."""
    one.settimeout(2.0)
    try:
        while one.recv(1 << 20):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nhost: a\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_who_does_not_go_on_is_left(server: Server, start: bytes) -> None:
    with server.connect() as silent:
        silent.sendall(start)
        time.sleep(0.5)
        assert is_closed(silent)
    assert server.ask(b"abc").endswith(b"3")


@pytest.mark.slow
def test_a_body_that_does_not_come_is_left_also_if_its_request_was_sent_before_a_reply(server: Server) -> None:
    with server.connect() as silent:
        first = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
        silent.sendall(first + b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nabc")
        assert is_closed(silent)


@pytest.mark.slow
def test_who_sends_a_byte_now_and_then_is_left_too(server: Server) -> None:
    with server.connect() as slow, pytest.raises(OSError):
        for _ in range(40):
            slow.sendall(b"G")
            time.sleep(0.05)


@pytest.mark.slow
def test_a_body_that_comes_steadily_may_take_longer(server: Server) -> None:
    with server.connect() as steady:
        steady.sendall(b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 40000\r\n\r\n")
        for _ in range(10):
            steady.sendall(b"x" * 4000)
            time.sleep(0.1)
        assert steady.recv(1000).endswith(b"40000")


ENDLESS = {
    "headers": (b"GET / HTTP/1.1\r\n", b"a: " + b"b" * 1000 + b"\r\n"),
    "one header": (b"GET / HTTP/1.1\r\na: ", b"b" * 1000),
    "the address": (b"GET /", b"b" * 1000),
    "trailers": (
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
        b"a: " + b"b" * 1000 + b"\r\n",
    ),
    "a chunk's length": (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", b"0" * 1000),
    "a chunk's remark": (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5;", b"b" * 1000),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ENDLESS)
def test_what_never_ends_is_refused_soon_and_holds_up_nobody(server: Server, what: str) -> None:
    start, more = ENDLESS[what]
    sent, longest = 0, 0.0
    with server.connect() as endless:
        endless.sendall(start)
        try:
            while sent < 20_000_000:
                endless.sendall(more * 60)
                sent += 60 * len(more)
                if sent % 1_000_000 < 60 * len(more):
                    began = time.monotonic()
                    server.ask()
                    longest = max(longest, time.monotonic() - began)
        except ConnectionError:
            pass
    assert sent < 5_000_000 and longest < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\na: " + b"b" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a: b\r\n" * 6000 + b"\r\n",
        b"GET /" + b"b" * 40_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /?" + b"b" * 40_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\na: " + b"b" * 40_000 + b"\r\n\r\n",
    ],
    ids=["one header", "many headers", "path", "query", "pipelined"],
)
def test_headers_that_come_in_one_piece_are_bounded_too(server: Server, head: bytes) -> None:
    with server.connect() as large:
        large.sendall(head)
        answers = b"".join(iter(lambda: large.recv(65_536), b""))
    assert b" 431 " in answers or b" 400 " in answers
    assert answers.count(b" 200 ") == head.count(b"GET") - 1
    assert server.ask(b"abc").endswith(b"3")


@pytest.mark.slow
def test_headers_within_the_bound_are_taken_in_one_piece(server: Server) -> None:
    with server.connect() as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\na: " + b"b" * 32_000 + b"\r\n\r\n")
        assert asking.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.slow
def test_silent_connections_make_room_for_those_that_ask(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_http, "HEAD_S", 30.0)
    serving = Server(most=20)
    try:
        with ExitStack() as silent:
            kept = [silent.enter_context(serving.connect()) for _ in range(60)]
            for _ in range(5):
                assert serving.ask(b"ab").endswith(b"2")
            assert is_closed(kept[0])
    finally:
        serving.close()


@pytest.mark.slow
@pytest.mark.realtime
def test_with_two_hundred_descriptors_257_silent_connections_lock_nobody_out() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "from tests.specnav.test_bounded_http import Server\n"
        "import time; s = Server(); print(s.address[1], flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    asked = Server.__new__(Server)
    asked.address = ("127.0.0.1", int(process.stdout.readline()))
    try:
        with ExitStack() as silent:
            for _ in range(257):
                silent.enter_context(asked.connect())
            for _ in range(10):
                assert asked.ask(b"abcd").endswith(b"4")
    finally:
        process.kill()
        process.wait()


def test_the_limit_of_descriptors_is_raised() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(7)[1]))\n"
        "from specnav.bounded_http import raised_file_limit; print(raised_file_limit())"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert int(told) == (1 << 20 if hard == resource.RLIM_INFINITY else hard)


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade, close\r\n\r\n",
    ],
)
def test_what_strangers_send_leaves_no_line_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    with caplog.at_level("WARNING"), server.connect() as stranger:
        stranger.sendall(request_)
        assert is_closed(stranger)
    assert server.ask(b"abc").endswith(b"3")
    assert caplog.records == []


@pytest.mark.slow
def test_a_body_that_is_malformed_after_its_request_was_replied_to_leaves_no_line_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"), server.connect() as stranger:
        stranger.sendall(b"POST /early HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        assert stranger.recv(1000).startswith(b"HTTP/1.1 200 ")
        stranger.sendall(b"no length\r\n")
        assert is_closed(stranger)
    assert server.ask(b"abc").endswith(b"3")
    assert caplog.records == []


HUNG_UP = pytest.param(
    signal.SIGHUP,
    3600.0,
    marks=pytest.mark.skipif(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, reason="ignored under nohup"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "drain_s"), [(signal.SIGTERM, 0.1), (signal.SIGINT, 3600.0), HUNG_UP])
def test_requests_that_outlast_the_drain_time_are_answered_and_silent_clients_are_left(
    number: signal.Signals, drain_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specnav.api.server, "_LAST_S", 0.1)

    async def scene() -> tuple[bytes, bytes]:
        begun, read, over, ready = [asyncio.Event() for _ in range(4)]

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            while (part := await receive())["type"] == "http.request" and part["more_body"]:
                begun.set()
            read.set()
            await over.wait()
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

        listening = specnav.api.server.listen("127.0.0.1:0")
        server = ApiServer(slow, drain_s, ready=ready.set, drain=lambda: None, stop=over.set)  # type: ignore[arg-type]
        serving = asyncio.ensure_future(server.serve([listening]))
        await ready.wait()
        asking = []
        for body in (b"abc", b"a"):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n" + body)
            asking.append((reader, writer))
            await (read if body == b"abc" else begun).wait()
            begun.clear()
        signal.raise_signal(number)
        whole, half = [await reader.read() for reader, _ in asking]
        await serving
        return whole, half

    whole, half = asyncio.run(asyncio.wait_for(scene(), 20))
    assert whole.startswith(b"HTTP/1.1 503") and half == b""

"""The pages of metrics and health are answered whatever other connections do."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cloud_verifier.observing import http
from cloud_verifier.observing.http import MOST_CONNECTIONS, StatusServer


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatusServer]:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.3)
    serving = StatusServer("127.0.0.1:0", lambda: b"m 1\n", lambda: "", lambda: "")
    yield serving
    serving.close()


def connect(status: StatusServer) -> socket.socket:
    host, _, port = status.bind.rpartition(":")
    return socket.create_connection((host, int(port)), 5)


def is_well(status: StatusServer) -> bool:
    with urllib.request.urlopen(f"http://{status.bind}/healthz", timeout=5) as answer:
        return bool(answer.read() == b"ok\n")


@pytest.mark.slow
def test_a_request_that_is_not_complete_in_time_is_left_however_it_comes(status: StatusServer) -> None:
    with connect(status) as slow, pytest.raises(ConnectionError):
        for _ in range(100):
            slow.sendall(b"G")
            time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("more", [b"x: " + b"y" * 500 + b"\r\n", b"y" * 500])
def test_headers_that_never_end_are_refused(status: StatusServer, more: bytes) -> None:
    sent = 0
    with connect(status) as endless:
        endless.sendall(b"GET /metrics HTTP/1.1\r\nx: ")
        with pytest.raises(ConnectionError):
            while sent < 50_000_000:
                endless.sendall(more * 100)
                sent += 100 * len(more)
    assert is_well(status)


@pytest.mark.slow
def test_silent_connections_take_few_threads_and_lock_nobody_out(status: StatusServer) -> None:
    before = set(threading.enumerate())  # other tests of this process leave threads that wait for work
    with ExitStack() as silent:
        for _ in range(5 * MOST_CONNECTIONS):
            silent.enter_context(connect(status))
        assert is_well(status)
        assert len(set(threading.enumerate()) - before) < 3 * MOST_CONNECTIONS


def test_a_head_request_gets_the_headers_of_the_page_and_no_body(status: StatusServer) -> None:
    with connect(status) as asking:
        asking.sendall(b"HEAD /healthz HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: asking.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.0 200 ") and b"Content-Length: 3\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "DELETE", "BREW"])
def test_other_methods_are_refused_in_plain_text_with_those_allowed(status: StatusServer, method: str) -> None:
    request = urllib.request.Request(f"http://{status.bind}/metrics", method=method, data=b"")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=5)
    with refused.value as answer:
        assert answer.code == 405 and answer.headers["Allow"] == "GET, HEAD"
        assert answer.headers.get_content_type() == "text/plain" and answer.read().endswith(b"\n")

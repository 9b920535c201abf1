"""Connections that break what libzmq has no bound for: a verifier behind them serves on, and every other client with
it.
"""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import zmq

from cloud_verifier.logs import EventLog
from cloud_verifier.net.router import make_router
from cloud_verifier.security import connections as watched
from cloud_verifier.security.connections import ConnectionBounds, Connections
from specdec.edge.decoder import connect
from specdec.link import wire
from specdec.link.router import new_router
from tests.cloud_verifier.raw_client import RawClient
from tests.helpers.keys import Keys
from tests.helpers.servers import PATIENCE_S
from tests.helpers.verifier import verifier
from tests.helpers.waiting import until

UNSEEDED = 0x6B8B4567
"""The first that C's rand() gives where nobody has seeded it."""
BYTES = 1 << 20


def plain(address: str) -> socket.socket:
    """A TCP connection, and nothing said on it."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=0.5)


def shaken_hands(address: str) -> socket.socket:
    """A DEALER by hand, as libzmq's own sends nothing of a message before it has all of it."""
    connection = plain(address)
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
    connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(48))
    heard = b""
    while len(heard) < 64:
        heard += connection.recv(64 - len(heard))
    connection.sendall(bytes([4, len(ready)]) + ready)
    _, size = connection.recv(1), connection.recv(1)
    assert connection.recv(size[0]).startswith(b"\x05READY")
    return connection


def part(size: int) -> bytes:
    """A frame with more to follow."""
    return b"\x03" + size.to_bytes(8, "big") + b"x" * size if size > 255 else bytes([1, size]) + b"x" * size


class Watched:
    """A ROUTER in this process, and what is read of it."""

    def __init__(
        self, encrypted: bool = False, of_key: int = 64, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = make_router(self.context)
        self.log = io.StringIO()
        bounds = ConnectionBounds(BYTES, 2 * BYTES, 4 * BYTES, lambda key: of_key)
        self.connections = Connections(self.router, EventLog(self.log), bounds, encrypted, clock)
        self.router.bind("tcp://127.0.0.1:0")
        self.address = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.connections.start()
        self._edges: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def edge(self, routing_id: bytes = b"") -> zmq.Socket[bytes]:
        edge = self._edges.socket(zmq.DEALER)
        edge.setsockopt(zmq.RECONNECT_IVL, -1)
        edge.sndhwm = 0
        if routing_id:
            edge.routing_id = routing_id
        edge.connect(self.address)
        return edge

    def raw(self) -> socket.socket:
        return plain(self.address)

    def read(self, key: str = "") -> list[bytes]:
        with suppress(zmq.Again):
            identity, first, frames = self.connections.receive()
            self.connections.heard(identity, first, key)
            return frames
        return []

    def until(self, so: Callable[[], object]) -> None:
        """Wait until it is so."""
        until(so, 20, self.log.getvalue)

    def close(self) -> None:
        self._edges.destroy(linger=0)
        self.connections.close()
        self.router.close(linger=0)
        self.context.term()


@pytest.fixture
def guarded() -> Iterator[Watched]:
    one = Watched()
    yield one
    one.close()


# -- routing ids


def test_the_ids_that_libzmq_gives_out_begin_somewhere_else_each_time() -> None:
    begun = set()
    for _ in range(3):
        with zmq.Context() as context, new_router(context) as router:
            router.bind("inproc://here")
            with context.socket(zmq.DEALER) as edge:
                edge.connect("inproc://here")
                edge.send(b"")
                begun.add(int.from_bytes(router.recv_multipart()[0][1:], "big"))
    assert len(begun) == 3 and UNSEEDED not in begun


@pytest.mark.graph
def test_a_client_that_claims_the_ids_that_come_next_does_not_end_the_verifier(model_root: Path) -> None:
    with verifier(model_root / "text-target", afresh=True) as (process, address, *_):
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        for number in range(UNSEEDED, UNSEEDED + 24):
            edge = context.socket(zmq.DEALER)
            edge.routing_id = b"\0" + number.to_bytes(4, "big")
            edge.connect(address)
        time.sleep(0.3)
        for _ in range(24):
            with closing(RawClient(address)) as honest:
                assert isinstance(honest.ask(wire.Ping(0)), wire.Pong)
        context.destroy(linger=0)
        assert process.poll() is None


def test_who_claims_an_id_of_that_kind_and_speaks_is_shut_out_and_nobody_else(guarded: Watched) -> None:
    honest, named = guarded.edge(), guarded.edge(b"robot-1")
    claims = guarded.edge(b"\0" + ((guarded.connections._first + 500) % 2**32).to_bytes(4, "big"))
    for edge in (honest, named, claims):
        edge.send(b"hello")
        guarded.until(lambda: guarded.read() == [b"hello"])
    guarded.until(lambda: guarded.connections.cut["claimed"] == 1)
    guarded.until(lambda: len(guarded.connections) == 2)
    for edge in (honest, named):
        edge.send(b"again")
        guarded.until(lambda: guarded.read() == [b"again"])


# -- messages that do not end


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100, 60_000])
def test_a_message_that_never_ends_is_cut_off_and_others_are_heard(
    size: int, guarded: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "_GROWTH_BYTES", 8 << 20)  # of empty frames, memory tells before the bytes do
    honest, endless = guarded.edge(), shaken_hands(guarded.address)
    honest.send(b"hello")
    guarded.until(lambda: guarded.read() == [b"hello"])
    some = part(size) * (65_536 // (size + 2) + 1)
    sent, until = 0, time.monotonic() + 20
    with suppress(OSError):
        while time.monotonic() < until:
            endless.sendall(some)
            sent += len(some)
    assert sent < 100 * BYTES
    guarded.until(lambda: guarded.connections.cut["unfinished"] == 1)
    honest.send(b"and after")
    guarded.until(lambda: guarded.read() == [b"and after"])
    guarded.until(lambda: len(guarded.connections) == 1)


@pytest.mark.slow
def test_what_is_over_one_message_and_under_two_is_cut_off_when_its_owner_has_had_time(guarded: Watched) -> None:
    endless = shaken_hands(guarded.address)
    endless.sendall(part(60_000) * (BYTES * 3 // 2 // 60_000))
    began = time.monotonic()
    guarded.until(lambda: guarded.connections.cut["unfinished"] == 1)
    assert time.monotonic() - began < 5 * watched._OVER_S
    endless.close()


@pytest.mark.slow
@pytest.mark.realtime
def test_messages_as_large_as_they_may_be_are_not_cut_off_however_slowly_they_come(guarded: Watched) -> None:
    edge = guarded.edge()
    for _ in range(4):  # not all at once: more than two that nobody has read yet are over the bound
        edge.send(b"x" * BYTES)
        guarded.until(lambda: guarded.read() == [b"x" * BYTES])
    slow = shaken_hands(guarded.address)
    body = BYTES - 100
    slow.sendall(b"\x02" + body.to_bytes(8, "big"))
    for _ in range(10):
        time.sleep(0.06)
        slow.sendall(b"y" * (body // 10))
    slow.sendall(b"y" * (body % 10))
    time.sleep(0.3)  # the owner of the socket may be busy
    guarded.until(lambda: guarded.read() == [b"y" * body])
    slow.close()
    assert not guarded.connections.cut


@pytest.mark.slow
def test_a_message_of_many_frames_is_read_once_and_no_more_come_from_there(guarded: Watched) -> None:
    edge = guarded.edge()
    edge.send_multipart([b"x"] * 5000)  # shorter than is looked at
    guarded.until(guarded.read)
    guarded.until(lambda: guarded.connections.cut["too many frames"])
    guarded.until(lambda: not len(guarded.connections))


@pytest.mark.slow
def test_what_one_key_has_unfinished_is_bounded_over_all_its_connections_and_no_other_key_pays() -> None:
    guarded = Watched(encrypted=True)  # as the reader says it: what comes in the clear counts as a key's
    try:
        robot, *greedy = [shaken_hands(guarded.address) for _ in range(7)]
        for edge, key in ((robot, "robot"), *((one, "greedy") for one in greedy)):
            edge.sendall(b"\0\x05hello")
            guarded.until(lambda key=key: guarded.read(key) == [b"hello"])
        time.sleep(2 * watched.TICK_S)
        robot.sendall(part(900_000))
        for edge in greedy:
            edge.sendall(part(500_000))
        guarded.until(lambda: guarded.connections.cut["unfinished"] == 2)  # 3 MB are there, and 2 may be
        time.sleep(4 * watched.TICK_S)
        assert guarded.connections.cut == {"unfinished": 2} and len(guarded.connections) == 5
        robot.sendall(b"\0\x03end")
        guarded.until(lambda: guarded.read("robot") == [b"x" * 900_000, b"end"])
        for edge in (robot, *greedy):
            edge.close()
    finally:
        guarded.close()


# -- connections


@pytest.mark.slow
def test_a_connection_that_says_nothing_is_closed_and_one_that_has_spoken_is_not(
    guarded: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "GREET_S", 0.4)
    spoke, silent, raw = guarded.edge(), guarded.edge(), guarded.raw()
    spoke.send(b"hello")
    guarded.until(lambda: guarded.read() == [b"hello"])
    guarded.until(lambda: guarded.connections.cut["silent"] == 2)
    assert len(guarded.connections) == 1 and raw.recv(1000) is not None
    silent.close(linger=0)


@pytest.mark.slow
def test_of_too_many_connections_of_a_key_those_go_that_were_silent_longest() -> None:
    guarded = Watched(encrypted=True, of_key=3)
    try:
        others = [guarded.edge() for _ in range(2)]
        for edge in others:
            edge.send(b"other")
            guarded.until(lambda: guarded.read("robot") == [b"other"])
        greedy = [guarded.edge() for _ in range(5)]
        for edge in greedy:
            edge.send(b"greedy")
            guarded.until(lambda: guarded.read("greedy") == [b"greedy"])
        guarded.until(lambda: guarded.connections.cut["too many of one key"] == 2)
        for edge in (*others, *greedy[2:]):
            edge.send(b"still")
            guarded.until(lambda: guarded.read("still") == [b"still"])
    finally:
        guarded.close()


@pytest.mark.slow
def test_a_key_that_floods_is_put_off_and_another_is_not(guarded: Watched) -> None:
    came = [guarded.connections.may_come("greedy") for _ in range(100)]
    assert came.count(True) == watched.MOST_UNGREETED
    assert guarded.connections.may_come("robot")


@pytest.mark.slow
def test_connections_that_come_and_go_quickly_are_not_counted_as_silent(guarded: Watched) -> None:
    for _ in range(2 * watched.MOST_UNGREETED):
        assert guarded.connections.may_come("robot")
        edge = guarded.edge()
        edge.send(b"hello")
        guarded.until(lambda: guarded.read("robot") == [b"hello"])
        edge.close(linger=0)  # mostly before the watching thread has looked: the next one gets its descriptor


@pytest.mark.slow
def test_a_key_that_was_cut_off_is_put_off_for_twice_as_long_each_time() -> None:
    now = 0.0

    def ticked(so: bool) -> bool:
        nonlocal now
        now += watched.TICK_S
        return so

    guarded = Watched(encrypted=True, clock=lambda: now)
    try:
        for turn, wait_s in enumerate((5, 10, 20)):
            assert guarded.connections.may_come("greedy")
            endless = shaken_hands(guarded.address)
            endless.sendall(b"\0\x05hello")
            guarded.until(lambda: guarded.read("greedy") == [b"hello"])
            guarded.until(lambda: ticked(all(one.greeted for one in guarded.connections._open.values())))
            with suppress(OSError):
                endless.sendall(part(60_000) * 40)
            guarded.until(lambda turn=turn: ticked(guarded.connections.cut["unfinished"] == turn + 1))
            assert guarded.connections.may_come("robot")
            now += wait_s - 2
            assert not guarded.connections.may_come("greedy")
            now += 3 + watched.GREET_S
    finally:
        guarded.close()


def test_what_a_stranger_sends_puts_no_key_off_that_was_admitted_from_its_address() -> None:
    guarded = Watched(encrypted=True)
    try:
        assert guarded.connections.may_come("robot")
        endless = shaken_hands(guarded.address)  # not heard yet: it may be anyone's
        with suppress(OSError):
            endless.sendall(part(60_000) * 40)
        guarded.until(lambda: guarded.connections.cut["unfinished"])
        assert guarded.connections.may_come("robot")
    finally:
        guarded.close()


@pytest.mark.graph
def test_four_hundred_silent_connections_keep_nobody_out_who_has_a_key(model_root: Path, keys: Keys) -> None:
    key = keys.new("robot-1")
    limited = ["--keys", str(keys.folder.path)]
    with verifier(model_root / "text-target", arguments=limited, descriptors=256) as (process, address, _, err):
        silent = []
        for _ in range(400):
            with suppress(OSError):
                silent.append(plain(address))
        with connect(address, connect_timeout_s=PATIENCE_S, key=key) as link:
            began = time.monotonic()
            link.ensure_connected()
            assert time.monotonic() - began < watched.GREET_S, "they were closed by time alone"
        process.terminate()
        assert any(json.loads(line)["event"] == "connection_cut" for line in err)
        for one in silent:
            one.close()


def test_a_descriptor_that_is_no_socket_by_now_is_let_go() -> None:
    ends = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="socket"):
        watched._peer_of(ends[0])
    assert len(os.listdir("/proc/self/fd")) == before
    for end in ends:
        os.close(end)

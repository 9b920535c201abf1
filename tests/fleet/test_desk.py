"""Edges and the directory over real sockets: keys, foreign bytes, and what an edge does while the directory is away."""

from __future__ import annotations

import io
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from cloud_verifier.logs import EventLog
from cloud_verifier.security.folder import KeyFolder
from specdec.errors import KeyRefused, LinkLost, VerifierBusy, VersionMismatch
from specdec.link import Link
from specdec.link import directory as edge_side
from specdec.link.directory import FleetRoute, marks_of
from specdec.link.directory_wire import MOST_BYTES, Ask, Nobody, Rest, Take, decode_told, encode
from specdec.link.wire import PROTOCOL_VERSION, Welcome
from specdec.link.wire import encode as encode_on_wire
from specnav.fleet.directory_server import DirectoryServer
from specnav.fleet.settings import FleetSettings, ReplicaBounds, directory_bind
from specnav.keys import Exported, NewClient, OneClient, export_client, new_client, revoke_client
from tests.helpers.waiting import until

pytestmark = pytest.mark.realtime
LONG_S = 20.0


class Directory:
    """A desk whose answers a test chooses."""

    def __init__(self, keys: str = "", bind: str = "tcp://127.0.0.1:0") -> None:
        self.asked: list[Ask] = []
        self.ranks: list[int] = []
        self.rested: list[bytes] = []
        self.says: str = "tcp://127.0.0.1:1"
        self.others: list[str] = []
        self.log = io.StringIO()
        self.desk = DirectoryServer(bind, keys, EventLog(self.log), self.answer, self.rested.append)
        self.address = f"fleet://127.0.0.1:{self.desk.port}"

    def answer(self, who: bytes, owner: bytes, ask: Ask, rank: int) -> Take | Nobody:
        self.asked.append(ask)
        self.ranks.append(rank)
        if not self.says:
            return Nobody(ask.number, "ready", "none of its 0 replicas is ready")
        return Take(ask.number, self.says, b"same", self.others)


@pytest.fixture
def directory() -> Iterator[Directory]:
    made = Directory()
    yield made
    made.desk.close()


def asked(route: FleetRoute, seconds: float = LONG_S) -> str:
    return route.next(time.monotonic() + seconds, lambda: False)


def test_an_edge_is_told_and_tells_what_failed_it(directory: Directory):
    route = FleetRoute(directory.address)
    assert asked(route) == directory.says
    assert route.failed(directory.says)
    directory.says = "tcp://127.0.0.1:2"
    assert asked(route) == directory.says
    assert directory.asked[-1].avoid == ["tcp://127.0.0.1:1"] and directory.asked[-1].at == ""
    assert route.failed(directory.says) and not route.failed(directory.says)
    route.close()


@pytest.mark.parametrize(
    ("node", "hosts"), [("192.0.2.7", ("127.0.0.1", "[::1]")), ("::1", ("[::1]",)), ("fd00::2", ("127.0.0.1", "[::1]"))]
)
def test_a_directory_that_others_reach_listens_on_ipv4_and_ipv6(node: str, hosts: tuple[str, ...]) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    settings = FleetSettings({"model": "x", "insecure": True}, ReplicaBounds(1, 1))
    host = settings.host(node)
    assert settings.config(host).bind == f"tcp://{host}:0"  # which a verifier takes
    made = Directory(bind=directory_bind(host, 0))
    try:
        for one in hosts:
            route = FleetRoute(f"fleet://{one}:{made.desk.port}")
            assert asked(route) == made.says
            route.close()
    finally:
        made.desk.close()


def test_an_edge_moves_between_two_answers_and_waits_for_nobody(directory: Directory):
    route = FleetRoute(directory.address)
    route.begin([1, 2], [])
    assert asked(route) == "tcp://127.0.0.1:1" and directory.asked[-1].active
    route.rest()
    directory.says = "tcp://127.0.0.1:2"
    assert not route.begin([1, 2], [])  # asks now, hears of it with the next answer
    until(lambda: len(directory.asked) == 2)
    time.sleep(0.1)
    route.rest()
    until(lambda: len(directory.rested) == 2)
    assert route.begin([1, 2], [])
    assert asked(route) == "tcp://127.0.0.1:2"
    route.close()


@pytest.mark.slow
def test_an_answer_that_is_resumed_asks_for_the_same_model(directory: Directory):
    route = FleetRoute(directory.address)
    route.begin([1], [])
    asked(route)
    assert directory.asked[-1].same == b""
    route.failed(directory.says)
    asked(route)
    assert directory.asked[-1].same == b"same"
    route.rest()
    route.begin([1], [])
    until(lambda: len(directory.asked) == 3)
    assert directory.asked[-1].same == b""
    route.close()


def test_an_answer_over_a_connection_that_was_kept_is_resumed_with_the_same_model(directory: Directory):
    with Link(directory.address, 5.0, 5.0) as link, zmq.Context() as context, context.socket(zmq.ROUTER) as verifier:
        directory.says = f"tcp://127.0.0.1:{verifier.bind_to_random_port('tcp://127.0.0.1')}"
        link.begin_answer([1], [])
        greeter = threading.Thread(target=greet, args=[verifier])
        greeter.start()
        link.ensure_connected()
        greeter.join()
        link.end_answer()
        link.begin_answer([2], [])
        assert link.ensure_connected() is link.told
        until(lambda: len(directory.asked) == 2)
        assert directory.asked[-1].same == b""  # before it has begun, any model will do
        link.answer_began()
        link.move_on()
        directory.says = "tcp://127.0.0.1:1"
        with pytest.raises(LinkLost):
            link.ensure_connected(lambda: len(directory.asked) > 2)
        assert directory.asked[2].same == b"same"


def greet(verifier: zmq.Socket[bytes]) -> None:
    who, _ = verifier.recv_multipart()
    verifier.send_multipart([who, encode_on_wire(Welcome(PROTOCOL_VERSION))])


@pytest.mark.slow
def test_while_the_directory_is_away_an_edge_goes_where_it_was_told_before():
    first = Directory()
    first.others = ["tcp://127.0.0.1:2"]
    route = FleetRoute(first.address)
    assert asked(route) == "tcp://127.0.0.1:1"
    first.desk.close()
    route.failed("tcp://127.0.0.1:1")
    began = time.monotonic()
    assert asked(route) == "tcp://127.0.0.1:2"
    assert time.monotonic() - began < edge_side.SILENT_S + LONG_S / 4
    second = Directory(bind=f"tcp://127.0.0.1:{first.desk.port}")
    second.says = "tcp://127.0.0.1:3"
    route.failed("tcp://127.0.0.1:2")  # nothing is left but the directory, which is back
    assert asked(route) == "tcp://127.0.0.1:3"
    second.desk.close()
    route.close()


@pytest.mark.slow
def test_an_edge_without_a_directory_or_without_a_replica_says_so_in_one_line(directory: Directory):
    gone = FleetRoute("fleet://127.0.0.1:1")
    with pytest.raises(LinkLost, match="no directory answers at fleet://") as lost:
        asked(gone, 0.3)
    assert not isinstance(lost.value, VerifierBusy)
    directory.says = ""
    route = FleetRoute(directory.address)
    with pytest.raises(VerifierBusy, match="none of its 0 replicas"):
        asked(route, 0.5)
    assert len(directory.asked) > 1
    gone.close()
    route.close()


@pytest.mark.slow
def test_another_version_is_told(directory: Directory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edge_side, "DIRECTORY_VERSION", 9)
    route = FleetRoute(directory.address)
    with pytest.raises(VersionMismatch, match="same release"):
        asked(route)
    route.close()


@pytest.mark.slow
def test_with_keys_only_their_holders_are_answered_and_their_class_counts(tmp_path: Path):
    ring = KeyFolder(tmp_path / "keys")
    other = KeyFolder(tmp_path / "other")
    for folder in (ring, other):
        new_client(NewClient(keys=folder.path, name="night", client_class="batch"))
        export_client(Exported(keys=folder.path, name="night", to=folder.path / "night.key"))
    made = Directory(str(ring.path))
    key = ring.path / "night.key"
    route = FleetRoute(made.address, key)
    assert asked(route) == made.says and made.ranks == [2]
    for wrong in (None, other.path / "night.key"):
        stranger = FleetRoute(made.address, wrong)
        with pytest.raises(KeyRefused, match="the directory at"):
            asked(stranger)
        stranger.close()
    revoke_client(OneClient(keys=ring.path, name="night"))
    with pytest.raises(KeyRefused, match="revoked"):
        for _ in range(50):
            asked(route)
            time.sleep(0.1)
    route.close()
    made.desk.close()


def test_foreign_bytes_are_answered_and_end_nothing(directory: Directory):
    chance = random.Random(7)
    ask = Ask(1, 5, bytes(16), "tcp://a:1", True, b"x", ["tcp://b:1"], [b"12345678"])
    ours = [encode(ask), encode(Rest(bytes(16)))]
    context = zmq.Context()
    hostile = context.socket(zmq.DEALER)
    hostile.linger = 0
    hostile.connect(f"tcp://127.0.0.1:{directory.desk.port}")
    route = FleetRoute(directory.address)
    for number in range(1500):
        message = bytearray(chance.choice(ours))
        kind = number % 5
        if kind == 0:
            message = bytearray(chance.randbytes(chance.randrange(200)))
        elif kind == 1:
            message[chance.randrange(len(message))] = chance.randrange(256)
        elif kind == 2:
            del message[chance.randrange(len(message)) :]
        elif kind == 3:
            message = bytearray(msgspec.msgpack.encode([1, *[[]] * chance.randrange(40)]))
        frames = [bytes(message)] * (2 if kind == 4 and number % 2 else 1)
        hostile.send_multipart(frames)
        if number % 300 == 0:
            hostile.setsockopt(zmq.RCVTIMEO, 50)
            assert asked(route) == directory.says
    until(lambda: directory.desk.malformed > 500)  # a busy machine answers an edge long before it has read all of them
    hostile.send(bytes(MOST_BYTES + 1))  # ends this connection, and no other
    assert asked(route) == directory.says
    assert "message_failed" not in directory.log.getvalue()
    hostile.setsockopt(zmq.RCVTIMEO, 1000)
    assert isinstance(decode_told(hostile.recv()), (Nobody, Take))
    hostile.close()
    context.term()
    route.close()


def test_marks_tell_beginnings_and_pictures_apart():
    assert marks_of([1, 2, 3], []) != marks_of([1, 2, 4], [])
    long = list(range(100))
    assert marks_of(long, [b"a"])[0] == marks_of([*long[:99], 7], [b"b"])[0]
    assert marks_of(long, [b"a"])[1] != marks_of(long, [b"b"])[1]
    assert len(marks_of([], [b"x"] * 64)) <= 8

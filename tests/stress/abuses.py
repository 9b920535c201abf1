"""What a client may do to a verifier that it does not wish well: one function an abuse, for `abuse_verifier.py`.

An abuse is a generator: it does some of its mischief and yields, so that the program that runs it can tell it to end;
its sockets are closed then. Everything here talks over plain sockets, with messages as `wire` has them or with none.
"""

from __future__ import annotations

import io
import socket as sockets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import zmq
from PIL import Image

from specdec.errors import ProtocolError
from specdec.link import wire
from specdec.link.convert import sampling_to_wire
from specdec.options import GenerationOptions
from tests.stress.fuzz_verifier import Mischief

MIB = 1 << 20
AT_ONCE = 20
SESSIONS = 8
"""That one client may have, by default."""
NODES = 512
"""Of a draft, at most, by default."""
IN_A_ROW = 3
"""Drafts that go on right behind one another are judged as one."""
LATEST = 1 << 20
"""An epoch that no verdict makes old."""


@dataclass(frozen=True)
class Ammunition:
    """What of the model an abuse needs to know. look: the ids of a prompt with one picture; look_at_many: with as many
    as may be, pictures: these.
    """

    vocab: int
    context: int
    look: tuple[int, ...]
    look_at_many: tuple[int, ...]
    pictures: tuple[bytes, ...]


class Hostile:
    """One hostile client. replies: what it was told, by kind or by the code of a refusal."""

    def __init__(self, address: str, ammunition: Ammunition) -> None:
        self.ammunition = ammunition
        self.replies: Counter[str] = Counter()
        self.sent = 0
        self._address = address
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def connect(self, routing_id: bytes = b"") -> zmq.Socket[bytes]:
        """One connection more, with an identity of its own."""
        socket = self._context.socket(zmq.DEALER)
        if routing_id:
            socket.routing_id = routing_id
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 4 * AT_ONCE)
        socket.connect(self._address)
        self._sockets.append(socket)
        return socket

    def plain(self) -> sockets.socket:
        """A TCP connection, on which nothing is said."""
        host, _, port = self._address.removeprefix("tcp://").rpartition(":")
        return sockets.create_connection((host, int(port)), timeout=1.0)

    def send(self, socket: zmq.Socket[bytes], data: bytes) -> None:
        """Send, or wait a moment where the verifier takes no more."""
        try:
            socket.send(data, flags=zmq.DONTWAIT)
            self.sent += 1
        except zmq.Again:
            time.sleep(0.002)

    def read(self, socket: zmq.Socket[bytes]) -> list[wire.Down]:
        """All that has come."""
        heard: list[wire.Down] = []
        while True:
            try:
                reply = wire.decode_down(socket.recv(flags=zmq.DONTWAIT))
            except zmq.Again:
                return heard
            except ProtocolError:
                continue
            heard.append(reply)
            self.replies[reply.code if isinstance(reply, wire.ErrorDown) else type(reply).__name__] += 1

    def drop(self, socket: zmq.Socket[bytes]) -> None:
        """Vanish."""
        socket.close(linger=0)
        self._sockets.remove(socket)

    def drop_all(self) -> None:
        """Vanish with all connections."""
        for socket in list(self._sockets):
            self.drop(socket)

    def open(self, session: int, ids: list[int], images: list[bytes], stream: bool = False, limit: int = 24) -> bytes:
        """The bytes of an Open."""
        options = GenerationOptions(limit, min_new_tokens=limit)
        return wire.encode(wire.Open(session, stream, sampling_to_wire(options), ids, images))


Abuse = Callable[[Hostile], Iterator[None]]


def png(width: int, height: int, padding: int = 0) -> bytes:
    """A picture, and bytes behind it that nothing looks at."""
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, format="PNG")
    return buffer.getvalue() + bytes(padding)


def nothing(hostile: Hostile) -> Iterator[None]:
    """The control: no abuse at all."""
    while True:
        time.sleep(0.05)
        yield


def heavy_pictures(hostile: Hostile) -> Iterator[None]:
    """Opens with a picture of 16 MB, again and again."""
    data = hostile.open(1, list(hostile.ammunition.look), [png(56, 56, 16 * MIB)])
    yield from _again_and_again(hostile, data)


def large_pictures(hostile: Hostile) -> Iterator[None]:
    """Opens with the most pixels that are allowed, in a file of 4 kB."""
    yield from _again_and_again(hostile, hostile.open(1, list(hostile.ammunition.look), [png(5600, 5600)]))


def many_pictures(hostile: Hostile) -> Iterator[None]:
    """Opens with as many pictures as fit the context, of as many pixels as are allowed."""
    mine = hostile.ammunition
    yield from _again_and_again(hostile, hostile.open(1, list(mine.look_at_many), list(mine.pictures)))


def picture_bombs(hostile: Hostile) -> Iterator[None]:
    """64 pictures of 25 megapixels, and one whose header reports 10 000 megapixels."""
    bomb = bytearray(png(56, 56))
    bomb[16:24] = (100_000).to_bytes(4, "big") * 2
    look, picture = list(hostile.ammunition.look), png(5000, 5000)
    socket = hostile.connect()
    while True:
        hostile.send(socket, hostile.open(1, look * 64, [picture] * 64))
        hostile.send(socket, hostile.open(2, look, [bytes(bomb)]))
        hostile.read(socket)
        yield


def grammar_bombs(hostile: Hostile) -> Iterator[None]:
    """Opens with a grammar that takes minutes to compile, a new one each time so that no cache knows it."""
    limit = 99_999_989
    yield from _with_grammars(hostile, lambda turn: f'start: %json {{"type":"integer","multipleOf":{limit - turn}}}')


def forced_text(hostile: Hostile) -> Iterator[None]:
    """Opens with a grammar of 15 kB that leaves no choice: every step of it is quadratic."""
    yield from _with_grammars(hostile, lambda turn: f'start: "{turn:06}{"a b " * 3800}"')


def _with_grammars(hostile: Hostile, text: Callable[[int], str]) -> Iterator[None]:
    socket = hostile.connect()
    ids = list(hostile.ammunition.look[:1])
    turn = 0
    while True:
        turn += 1
        sampling = sampling_to_wire(GenerationOptions(24, grammar=text(turn)))
        hostile.send(socket, wire.encode(wire.Open(turn % SESSIONS + 1, True, sampling, ids)))
        hostile.read(socket)
        time.sleep(0.02)
        yield


def trees(hostile: Hostile) -> Iterator[None]:
    """The largest trees that are allowed, in every session, and now and then one of 4096 nodes."""
    yield from _drafts(hostile, [-1] * NODES)


def long_drafts(hostile: Hostile) -> Iterator[None]:
    """The longest chains that are allowed, each going on right behind the one before."""
    yield from _drafts(hostile, None)


def flapping(hostile: Hostile) -> Iterator[None]:
    """Connect, open, vanish, with a new identity each time."""
    most = hostile.ammunition.vocab // 2
    turn = 0
    while True:
        turn += 1
        data = hostile.open(1, [(turn * 7 + place) % most for place in range(200)], [])
        socket = hostile.connect()
        socket.send(wire.encode(wire.Hello(wire.PROTOCOL_VERSION, "flap")))
        socket.send(data)
        hostile.sent += 1
        socket.poll(20)
        hostile.read(socket)
        hostile.drop(socket)
        yield


def pings(hostile: Hostile) -> Iterator[None]:
    """Pings as fast as they can be sent."""
    yield from _again_and_again(hostile, wire.encode(wire.Ping(0)))


def garbage(hostile: Hostile) -> Iterator[None]:
    """Messages that are legal, illegal and broken, as fast as they can be sent."""
    mischief = Mischief(0, hostile.ammunition.vocab)
    prepared = [frames[0] for frames in (mischief.frames() for _ in range(5000)) if len(frames) == 1]
    socket = hostile.connect()
    while True:
        for start in range(0, len(prepared), AT_ONCE):
            for data in prepared[start : start + AT_ONCE]:
                hostile.send(socket, data)
            hostile.read(socket)
            yield


def long_lists(hostile: Hostile) -> Iterator[None]:
    """Prompts of 100 000 ids, far more than any context takes, and the same with its last byte wrong."""
    data = hostile.open(1, [1] * 100_000, [])
    at = data.rindex(b"\x01\x01\x01") + 2
    broken = data[:at] + b"\xc0" + data[at + 1 :]
    socket = hostile.connect()
    while True:
        for one in (data, broken):
            hostile.send(socket, one)
        hostile.read(socket)
        yield


def slow_reader(hostile: Hostile) -> Iterator[None]:
    """Open all streams that are allowed, ask for hellos, and read nothing."""
    socket = hostile.connect()
    socket.setsockopt(zmq.RCVHWM, 1)
    for session in range(1, SESSIONS + 1):
        socket.send(hostile.open(session, [1, 2, 3], [], stream=True, limit=1900))
    hello = wire.encode(wire.Hello(wire.PROTOCOL_VERSION, "slow"))
    while True:
        for _ in range(AT_ONCE):
            hostile.send(socket, hello)
        time.sleep(0.02)
        yield


def long_prompts(hostile: Hostile) -> Iterator[None]:
    """Prompts that fill the context, in every session, again and again."""
    mine = hostile.ammunition
    socket = hostile.connect()
    turn = 0
    while True:
        turn += 1
        ids = [(turn + place) % (mine.vocab // 2) for place in range(mine.context - 30)]
        hostile.send(socket, hostile.open(turn % SESSIONS + 1, ids, [], limit=8))
        hostile.read(socket)
        time.sleep(0.02)
        yield


def long_messages(hostile: Hostile) -> Iterator[None]:
    """Messages beyond the bound, 40 MB, and beyond what ZeroMQ takes at all, 70 MB."""
    sizes = (40 * MIB, 70 * MIB)
    messages = [bytes(size) for size in sizes]
    while True:
        for data in messages:
            socket = hostile.connect()
            socket.send(data)
            hostile.sent += 1
            socket.poll(1000)
            hostile.read(socket)
            hostile.drop(socket)
            yield


def endless(hostile: Hostile, part: bytes = b"\x03" + (65_536).to_bytes(8, "big") + bytes(65_536)) -> Iterator[None]:
    """A message of frames without end, by hand; from the beginning where it is cut off."""
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"
    while True:
        with suppress(OSError), hostile.plain() as plain:
            plain.sendall(b"\xff" + bytes(8) + b"\x7f\x03\0NULL" + bytes(48))
            while plain.recv(64, sockets.MSG_PEEK | sockets.MSG_WAITALL):
                plain.recv(64)
                plain.sendall(bytes([4, len(ready)]) + ready)
                while True:
                    plain.sendall(part)
                    hostile.sent += 1
                    yield
        yield


def endless_empty(hostile: Hostile) -> Iterator[None]:
    """The same of empty frames: two bytes on the wire, sixty-four in memory."""
    yield from endless(hostile, b"\x01\0" * 32_768)


def claimed_ids(hostile: Hostile) -> Iterator[None]:
    """Connections that claim the routing ids that libzmq gives out next, as far as one knows them."""
    first = 0x6B8B4567
    while True:
        for number in range(first, first + 32):
            socket = hostile.connect(b"\0" + number.to_bytes(4, "big"))
            if number % 2:
                hostile.send(socket, wire.encode(wire.Ping(0)))
        for _ in range(32):
            hostile.send(hostile.connect(), wire.encode(wire.Ping(0)))
            time.sleep(0.02)
            yield
        hostile.drop_all()
        time.sleep(0.2)  # libzmq closes them by and by


def silent_connections(hostile: Hostile) -> Iterator[None]:
    """TCP connections on which nothing is said."""
    held: list[sockets.socket] = []
    while True:
        with suppress(OSError):
            held.append(hostile.plain())
            hostile.sent += 1
        if len(held) > 400:
            held.pop(0).close()
        time.sleep(0.002)
        yield


def without_keys(hostile: Hostile) -> Iterator[None]:
    """Plain clients at a port for those with keys, a new one each time, that never get in."""
    data = wire.encode(wire.Hello(wire.PROTOCOL_VERSION, "plain"))
    while True:
        batch = [hostile.connect() for _ in range(AT_ONCE)]
        for socket in batch:
            hostile.send(socket, data)
        time.sleep(0.02)
        for socket in batch:
            hostile.read(socket)
            hostile.drop(socket)
        yield


def _again_and_again(hostile: Hostile, data: bytes) -> Iterator[None]:
    """The same message at full rate, its replies read."""
    socket = hostile.connect()
    while True:
        for _ in range(AT_ONCE if len(data) < MIB else 1):
            hostile.send(socket, data)
        hostile.read(socket)
        yield


def _drafts(hostile: Hostile, parents: list[int] | None) -> Iterator[None]:
    """Drafts in all sessions, the next as soon as there is a verdict, and one too large for each of them.

    parents: of a tree; None: chains.
    """
    socket = hostile.connect()
    bases = dict.fromkeys(range(1, SESSIONS + 1), 0)
    idle = set(bases)
    too_large = wire.encode(wire.DraftUp(1, 1, 1, [1] * 4096, [-1] * 4096))
    round_ = 0
    while True:
        for session in sorted(idle):
            base = bases[session]
            if not base:
                hostile.send(socket, hostile.open(session, [1, 2, 3], [], limit=1900))
                continue
            for step in range(IN_A_ROW if parents is None else 1):
                round_ += 1
                draft = wire.DraftUp(session, round_, base + step * NODES, [5] * NODES, parents, LATEST)
                hostile.send(socket, wire.encode(draft))
        idle.clear()
        hostile.send(socket, too_large)
        socket.poll(50)
        for reply in hostile.read(socket):
            if isinstance(reply, wire.Opened):
                bases[reply.session] = 1
            elif isinstance(reply, wire.VerdictDown):
                bases[reply.session] += 1 + (reply.last if parents is None else min(reply.last, 1))
            elif isinstance(reply, wire.ErrorDown) and reply.code != wire.ERROR_TOO_LARGE and reply.session:
                bases[reply.session] = 0  # to be opened again
            else:
                continue
            idle.add(reply.session)
        yield


ABUSES: dict[str, Abuse] = {
    function.__name__.replace("_", "-"): function
    for function in (
        nothing,
        heavy_pictures,
        large_pictures,
        many_pictures,
        picture_bombs,
        grammar_bombs,
        forced_text,
        trees,
        long_drafts,
        flapping,
        pings,
        garbage,
        long_lists,
        slow_reader,
        long_prompts,
        long_messages,
        endless,
        endless_empty,
        claimed_ids,
        silent_connections,
        without_keys,
    )
}
KEYED = frozenset({"without-keys"})
"""Abuses of a verifier with keys."""

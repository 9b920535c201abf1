# SPDX-License-Identifier: Apache-2.0
"""Bounds on the connections of a ROUTER socket that libzmq does not have.

libzmq counts whole messages only. A message of endless frames grows until memory is full, without the socket's owner
noticing. libzmq also keeps connections that never send anything, accepts until there are no descriptors left, and lets
a client claim a routing id of the kind that libzmq itself assigns.

A thread watches the socket's connections from outside. The monitor reports each descriptor, the kernel reports how much
has arrived on it, and the socket's owner reports which one a message came from. A connection over a bound is shut down
by its descriptor; libzmq then drops it with everything it has read of it.

If an owner (a key, or the client's address without one) has too much, only its own connections are shut down.
"""

from __future__ import annotations

import ctypes
import os
import resource
import secrets
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import zmq
from zmq.utils.monitor import recv_monitor_message

from cloud_verifier.limits import TokenBucket
from cloud_verifier.logs import EventLog

GREET_S = 10.0
"""A connection that has sent no message this long after it was accepted is shut down. Six round trips of a bad link,
and the processor time that a busy machine needs for the handshake, take less."""
TICK_S, BUSY_S, IDLE_S = 0.05, 0.005, 0.2
"""Poll intervals: with connections, while a long message arrives, and without connections."""
SUSPENDED_S, MOST_SUSPENDED_S = 5.0, 600.0
"""A key that did what no honest client does is refused new connections for this long, doubled each time."""
MOST_FRAMES = 8
"""Most frames of a message; with more its connection is shut down. A message of this protocol has one frame."""
MOST_UNGREETED = 32
"""Most connections of one key that were admitted and have sent nothing yet."""
ADMITTED_A_S, ADMITTED_AT_ONCE = 20.0, 200
MOST_CONNECTIONS = 8192
_FIRST_BYTES = 1 << 20
"""Most bytes of an encrypted connection before its first message: it starts with a greeting, and until a message is
complete its owner is unknown."""
_OVER_S = 1.0
"""More than one message may be buffered for this long: on a busy machine the socket's owner may not yet have read the
complete ones. More than two messages are cut at once."""
_WATCHED_BYTES = 256 * 1024
"""Unfinished messages shorter than this are ignored."""
_GROWTH_BYTES = 64 << 20
TRIM_S = 0.1
"""Time after which libzmq has freed a long message that was dropped."""
_DESCRIPTORS_SHARE = 0.6
"""Largest share of the initially free descriptors for connections: files and engines need some."""
_LEAST_CONNECTIONS = 16
_TICKS_SHARE = 10
_FAILURES = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED | _FAILURES
_TCP_INFO, _BYTES_RECEIVED_AT = 11, 128
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ConnectionBounds:
    """Bounds on connections.

    message_bytes: largest message; also the most unfinished bytes per connection. unfinished_bytes: most unfinished
    bytes of one key. total_bytes: most unfinished bytes of all connections together. of_key: most connections of a key,
    by its name.
    """

    message_bytes: int
    unfinished_bytes: int
    total_bytes: int
    of_key: Callable[[str], int]


@dataclass
class _Connection:
    """base: bytes received when its last message was read. resident: memory of the process when its unfinished message
    became long; 0 before that. over_s: since when it has exceeded the bound; complete messages may still be waiting to
    be read then.
    """

    inode: int
    address: str
    heard_s: float
    key: str = ""
    greeted: bool = False
    base: int = 0
    unfinished: int = 0
    over_s: float | None = None
    resident: int = 0

    @property
    def owner(self) -> str:
        return f"key {self.key}" if self.key else f"address {self.address}"


@dataclass
class _Admitted:
    """Connections of one key. since: when each admitted connection that has sent nothing yet was admitted."""

    bucket: TokenBucket
    suspended_until_s: float = float("-inf")
    breaches: int = 0
    since: deque[float] = field(default_factory=deque)



def _descriptor_of(frame: zmq.Frame) -> int:
    """The descriptor of a frame's connection; -1 if libzmq does not report it, as for some empty frames."""
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


class Connections:
    """Watches one ROUTER socket, from `start` to `close`. cut: connections that were shut down, by reason."""

    def __init__(
        self,
        router: zmq.Socket[bytes],
        log: EventLog,
        bounds: ConnectionBounds,
        encrypted: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it before the socket is bound. encrypted: all clients have keys."""
        self.cut: Counter[str] = Counter()
        self.handshakes_failed = 0
        self._log = log
        self._bounds = bounds
        self._encrypted = encrypted
        self._clock = clock
        self._router = router
        self._open: dict[int, _Connection] = {}
        self._heard: deque[tuple[int, str, bytes]] = deque()
        self._speakers: dict[int, bytes] = {}
        self._accepted = 0
        self._over = False
        self._too_many_frames: deque[tuple[int, int]] = deque()
        self._first = _first_id(router)
        self._admitted: dict[str, _Admitted] = {}
        self._most = MOST_CONNECTIONS
        self._next_tick = clock()
        self._trim_s = float("inf")
        self._info = ctypes.create_string_buffer(256)
        self._libc = ctypes.CDLL(None)
        router.setsockopt(zmq.HANDSHAKE_IVL, int(GREET_S * 1000))
        self._monitor = router.get_monitor_socket(_EVENTS)
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Start watching; call it once the socket is bound."""
        free = raise_descriptors() - psutil.Process().num_fds()
        self._most = max(_LEAST_CONNECTIONS, min(MOST_CONNECTIONS, int(_DESCRIPTORS_SHARE * free)))
        self._thread.start()

    def close(self) -> None:
        """Stop watching; call it before the socket is closed, in the thread that owns it."""
        self._router.disable_monitor()  # before its reader ends: libzmq would wait for a reader
        self._over = True
        if self._thread.is_alive():
            self._thread.join(5.0)

    # -- called in the thread that owns the socket

    def receive(self) -> tuple[bytes, zmq.Frame, list[bytes]]:
        """The next message as (routing id, first frame, frames); at most MOST_FRAMES frames are returned. Raises
        zmq.Again if there is none.
        """
        identity = self._router.recv(zmq.DONTWAIT)
        # Not copied, because only libzmq's own frames report their connection.
        first = frame = self._router.recv(zmq.DONTWAIT, copy=False)
        frames = [frame.bytes]
        count = 1
        while frame.more:
            frame = self._router.recv(zmq.DONTWAIT, copy=False)
            count += 1
            if count <= MOST_FRAMES:
                frames.append(frame.bytes)
        if count > MOST_FRAMES:
            self._too_many_frames.append((_descriptor_of(first), count))
        return identity, first, frames

    def heard(self, identity: bytes, frame: zmq.Frame, key: str) -> None:
        """Record a message by its first frame. key: the name of its client's key, "" without one."""
        descriptor = _descriptor_of(frame)
        if descriptor < 0:
            return
        if self._speakers.get(descriptor) != identity:  # its first message
            self._speakers[descriptor] = identity
            if key and (since := self._admissions_of(key).since):
                since.popleft()
        self._heard.append((descriptor, key, identity))

    def may_come(self, key: str) -> bool:
        """Whether a key may make another connection now; if so, the connection is counted."""
        now = self._clock()
        about = self._admissions_of(key)
        while about.since and now - about.since[0] > GREET_S:
            about.since.popleft()
        many = now < about.suspended_until_s or len(about.since) >= MOST_UNGREETED
        if many or not about.bucket.take():
            self.cut["too many at once"] += 1
            self._log.warning("connection_put_off", client=key, waiting=len(about.since))
            return False
        about.since.append(now)
        return True

    def _admissions_of(self, key: str) -> _Admitted:
        bucket = TokenBucket(ADMITTED_A_S, ADMITTED_AT_ONCE, self._clock)
        return self._admitted.setdefault(key, _Admitted(bucket))  # in one step: two threads ask

    # -- the watching thread

    def _run(self) -> None:
        while not self._over:
            try:
                self._step()
            except zmq.ContextTerminated:
                break
            except Exception as error:  # libzmq blocks without a reader of its events: continue after any error
                self._log.error("connections_failed", traceback=self._log.trace_of(error))
                self._next_tick = self._clock() + IDLE_S
        self._monitor.close(linger=0)

    def _step(self) -> None:
        wait_s = self._next_tick - self._clock() if self._open or self._trim_s < float("inf") else IDLE_S
        if self._monitor.poll(max(1, int(wait_s * 1000))):
            self._take_event()
        began = self._clock()
        if not self._over and began >= self._next_tick:
            worked = time.thread_time()
            self._tick(began)
            wait_s = BUSY_S if any(one.unfinished > _WATCHED_BYTES for one in self._open.values()) else TICK_S
            self._next_tick = began + max(wait_s, _TICKS_SHARE * (time.thread_time() - worked))

    def _take_event(self) -> None:
        told = recv_monitor_message(self._monitor)
        event, value = told["event"], int(told["value"])
        if event == zmq.EVENT_ACCEPTED:
            with suppress(OSError):  # already closed
                self._open[value] = _Connection(os.fstat(value).st_ino, _peer_of(value), self._clock())
            self._accepted += 1
            if len(self._open) > self._most:
                self._make_room()
        elif event == zmq.EVENT_DISCONNECTED or event == zmq.EVENT_CLOSED:
            self._open.pop(value, None)
        elif event == zmq.EVENT_ACCEPT_FAILED:
            self._log.warning("accept_failed", connections=len(self._open), reason=os.strerror(value))
            self._most = max(_LEAST_CONNECTIONS, min(self._most, len(self._open)) - 1)
            self._make_room()
        else:
            # ZeroMQ reports no details.
            kinds = "without a key, with an old key of this server," if self._encrypted else "with a key"
            reason = f"a client {kinds} or not of this protocol"
            self.handshakes_failed += 1
            self._log.warning("handshake_failed", reason=reason)

    def _tick(self, now: float) -> None:
        if now >= self._trim_s:
            # Return the memory of the dropped message, or the next one could fill it without visible growth.
            self._trim_s = float("inf")
            with suppress(AttributeError):
                self._libc.malloc_trim(0)
        heard: dict[int, tuple[str, bytes]] = {}
        while self._heard:  # the other thread keeps adding to it
            place, key, identity = self._heard.popleft()
            heard[place] = key, identity
        while self._monitor.poll(0):  # afterwards every connection that sent a message is known
            self._take_event()
        for place, (key, identity) in heard.items():
            self._note(place, key, identity, now)
        resident = 0
        for place, one in list(self._open.items()):
            if not one.greeted and now - one.heard_s > GREET_S:
                self._cut(place, "silent", f"it sent no message within {GREET_S:g} s")
                continue
            received = self._received(place)
            if place in heard:
                one.base, one.over_s, one.resident = received, None, 0
            one.unfinished = max(0, received - one.base)
            most = self._bounds.message_bytes if one.greeted or not self._encrypted else _FIRST_BYTES
            if one.unfinished > most:
                one.over_s = now if one.over_s is None else one.over_s
                if now - one.over_s >= _OVER_S or one.unfinished > 2 * most:
                    self._cut(place, "unfinished", f"{one.unfinished} bytes of one message arrived, {most} are allowed")
            elif one.unfinished > _WATCHED_BYTES and not self._encrypted:
                # Unencrypted, an empty frame takes two bytes on the wire and 64 in memory.
                resident = resident or _resident_bytes()
                one.resident = one.resident or resident
                if resident - one.resident > _GROWTH_BYTES + 2 * self._unfinished(self._open.values()):
                    self._cut(place, "unfinished", "a message of very many frames fills memory")
        self._bound_sums()
        while self._too_many_frames:
            place, count = self._too_many_frames.popleft()
            self._cut(place, "too many frames", f"a message of {count} frames arrived, one is expected")

    def _note(self, place: int, key: str, identity: bytes, now: float) -> None:
        """A message has arrived on a connection."""
        one = self._open.get(place)
        if one is None:
            return
        one.heard_s, one.key = now, key
        if one.greeted:
            return
        one.greeted = True
        if self._is_claimed(identity):
            self._cut(place, "claimed", "it claimed a routing id of the kind that libzmq assigns")
            return
        if not key:
            return
        mine = [(there, other) for there, other in self._open.items() if other.key == key]
        most = self._bounds.of_key(key)
        for there, _ in sorted(mine, key=lambda each: each[1].heard_s)[: max(0, len(mine) - most)]:
            self._cut(there, "too many of one key", f"its key has {len(mine)} connections, {most} are allowed")

    def _bound_sums(self) -> None:
        """Bound the unfinished bytes of each key and of all together: cut the longest messages of the largest
        owner.
        """
        long = {place: one for place, one in self._open.items() if one.unfinished > _WATCHED_BYTES}
        while long:
            by_owner: Counter[str] = Counter()
            for one in long.values():
                by_owner[one.owner] += one.unfinished
            owner, most = by_owner.most_common(1)[0]
            of_one = owner.startswith("key ") and most > self._bounds.unfinished_bytes
            if not of_one and by_owner.total() <= self._bounds.total_bytes:
                return
            place = max((each for each in long if long[each].owner == owner), key=lambda each: long[each].unfinished)
            del long[place]
            self._cut(place, "unfinished", f"{most} bytes of unfinished messages arrived from one client")

    def _make_room(self) -> None:
        """Cut a connection when there are too many: the longest silent one of the owner with the most connections,
        counting only connections that have sent nothing yet, if there are any.
        """
        silent = {place: one for place, one in self._open.items() if not one.greeted}
        among = silent or self._open
        counts = Counter(one.owner for one in among.values())
        places = [place for place, one in among.items() if counts[one.owner] == max(counts.values())]
        if places:
            oldest = min(places, key=lambda place: among[place].heard_s)
            self._cut(oldest, "too many", f"there are {len(self._open)} connections, {self._most} are allowed")

    def _is_claimed(self, identity: bytes) -> bool:
        """Whether a routing id looks like one that libzmq assigns but has not assigned yet. When libzmq reaches that
        number, it would find it taken and abort the process.
        """
        if len(identity) != 5 or identity[0]:
            return False
        return (int.from_bytes(identity[1:], "big") - self._first) % 2**32 > self._accepted

    def _unfinished(self, some: Iterable[_Connection]) -> int:
        return sum(one.unfinished for one in some)

    def _cut(self, place: int, why: str, reason: str) -> None:
        """Shut down this connection only: its descriptor may already belong to another one."""
        one = self._open.pop(place, None)
        if one is None:
            return
        self.cut[why] += 1
        if why == "unfinished":
            self._trim_s = self._clock() + TRIM_S
        self._log.warning("connection_cut", client=one.key, address=one.address, reason=reason)
        if one.key and why in ("unfinished", "claimed", "too many frames"):  # others may share the address alone
            about = self._admissions_of(one.key)
            about.suspended_until_s = self._clock() + min(SUSPENDED_S * 2**about.breaches, MOST_SUSPENDED_S)
            about.breaches = min(about.breaches + 1, 16)
        with suppress(OSError), _socket_at(place) as held:
            if os.fstat(held.fileno()).st_ino == one.inode:
                held.shutdown(socket.SHUT_RDWR)

    def _received(self, place: int) -> int:
        """Bytes received on a connection so far; 0 if the system does not report them."""
        size = ctypes.c_uint32(len(self._info))
        failed = self._libc.getsockopt(place, socket.IPPROTO_TCP, _TCP_INFO, self._info, ctypes.byref(size))
        if failed or size.value < _BYTES_RECEIVED_AT + 8:
            return 0
        return int.from_bytes(self._info.raw[_BYTES_RECEIVED_AT : _BYTES_RECEIVED_AT + 8], "little")


def raise_descriptors() -> int:
    """Raise this process's limit of descriptors to the allowed maximum; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return 1


def _peer_of(place: int) -> str:
    """The address at the other end of a descriptor, without its port."""
    with _socket_at(place) as held:
        return str(held.getpeername()[0])


def _socket_at(place: int) -> socket.socket:
    """A socket on a copy of a descriptor. Raises OSError if it belongs to something else by now."""
    mine = os.dup(place)
    try:
        return socket.socket(fileno=mine)
    except OSError:
        os.close(mine)
        raise


def _first_id(router: zmq.Socket[bytes]) -> int:
    """The first number that libzmq assigns on this socket, learned from a connection of our own before any other."""
    address = f"inproc://first-id-{secrets.token_hex(8)}"
    router.bind(address)
    with router.context.socket(zmq.DEALER) as own:
        own.linger = 0
        own.connect(address)
        own.send(b"")
        identity = router.recv_multipart()[0]
    router.unbind(address)
    return int.from_bytes(identity[1:], "big")

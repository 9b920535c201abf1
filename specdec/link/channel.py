"""The edge's end of the link: one ZeroMQ DEALER socket that connects lazily and notices when nobody answers.

Knows messages and time, nothing of drafting. Every wait is bounded; silence longer than the reply time-out,
or the peer closing the connection, raises LinkLost, and the next use connects anew. With a key the connection is
encrypted, and each side knows the other; a verifier that does not take it is told as KeyRefused.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import zmq
from zmq.utils.monitor import recv_monitor_message

from specdec.errors import (
    KeyRefused,
    LinkLost,
    OptionsError,
    ProtocolError,
    VerifierBusy,
    VersionMismatch,
)
from specdec.link.greeting import mechanism_at
from specdec.link.keys import read_key, use_key
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_KEY,
    ERROR_VERSION,
    MAX_DOWN_BYTES,
    PROTOCOL_VERSION,
    Down,
    ErrorDown,
    Hello,
    Up,
    Welcome,
    decode_down,
    encode,
)

_FIRST_BACKOFF_S = 0.25
_FIRST_BACKOFF_ENCRYPTED_S = 2.0
"""An encrypted hand-shake takes five or six round trips; who begins it anew too soon never gets through a long link."""
_MAX_BACKOFF_S = 2.0
_HIGH_WATER_MARK = 1000
_LINGER_MS = 100
_FAILED_HANDSHAKE = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _FAILED_HANDSHAKE


def connect(
    address: str,
    connect_timeout_s: float = 5.0,
    reply_timeout_s: float = 2.0,
    round_timeout_s: float = 60.0,
    key: str | Path | None = None,
) -> Link:
    """A link to a verifier, e.g. "tcp://127.0.0.1:5555". Nothing is sent before the first use.

    connect_timeout_s: how long to try, with back-off, before LinkLost. reply_timeout_s: silence after which
    the link counts as lost; heartbeats keep a busy verifier from being silent. round_timeout_s: longest wait
    for one reply from a verifier that is alive. key: the file of this edge's key, for a verifier with keys; it is read
    again at every connection. Raises OptionsError for a time-out out of range and a key file that cannot be used.
    """
    for name, value in (
        ("connect_timeout_s", connect_timeout_s),
        ("reply_timeout_s", reply_timeout_s),
        ("round_timeout_s", round_timeout_s),
    ):
        if not 0.01 <= value <= 3600:
            raise OptionsError(f"{name} = {value!r} is out of range: choose 0.01 to 3600 seconds")
    if key is not None:
        read_key(key)
    return Link(address, connect_timeout_s, reply_timeout_s, round_timeout_s, key=key)


class Link:
    """One connection to one verifier, for one answer at a time and one thread at a time."""

    def __init__(
        self,
        address: str,
        connect_timeout_s: float,
        reply_timeout_s: float,
        round_timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        key: str | Path | None = None,
    ) -> None:
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.reply_timeout_s = reply_timeout_s
        self.round_timeout_s = round_timeout_s
        self.malformed = 0
        self._key = key
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._let_go: Callable[[], object] = lambda: None
        self._poller = zmq.Poller()
        self._welcome: Welcome | None = None
        self._last_session = 0
        self._token = b""
        self._message_bytes = 0

    def ensure_connected(self, give_up: Callable[[], bool] = lambda: False) -> Welcome:
        """Connect and shake hands unless that is done; returns what the verifier said about itself.

        give_up is asked now and then; when it says True the wait ends with LinkLost, too. Raises LinkLost
        when nobody answers within connect_timeout_s, VerifierBusy when it takes nobody at present, VersionMismatch and
        ProtocolError when somebody else answers, KeyRefused when the verifier does not take the key, OptionsError when
        the key's file cannot be used.
        """
        if self._welcome is not None:
            return self._welcome
        deadline = self._clock() + self.connect_timeout_s
        backoff = _FIRST_BACKOFF_S if self._key is None else _FIRST_BACKOFF_ENCRYPTED_S
        while True:
            self._open_socket()
            self.send(Hello(PROTOCOL_VERSION, "specdec", self._token))
            welcome = self._await_welcome(min(deadline, self._clock() + backoff), give_up)
            if welcome is not None:
                self._welcome = welcome
                self._token = welcome.token
                self._message_bytes = welcome.allowed.message_bytes
                return welcome
            self.reset()
            if self._clock() >= deadline or give_up():
                raise LinkLost(
                    f"no verifier answers at {self.address} (tried for {self.connect_timeout_s:g} s): "
                    "check that it runs and the address is right"
                )
            backoff = min(2 * backoff, _MAX_BACKOFF_S)

    def next_session(self) -> int:
        """A session number this link has not used yet."""
        self._last_session = self._last_session % 0xFFFF + 1
        return self._last_session

    def send(self, message: Up) -> int:
        """Send one message; returns how many bytes ZeroMQ was handed. Raises LinkLost if it takes no more, OptionsError
        for a message that is longer than the verifier takes.
        """
        if self._socket is None:
            raise LinkLost(f"the link to {self.address} is not connected: connect first")
        data = encode(message)
        if 0 < self._message_bytes < len(data):
            raise OptionsError(
                f"a message of {len(data)} bytes is too large: the verifier takes {self._message_bytes}; send smaller "
                "images or a shorter prompt, or start it with a larger --max-message-mb"
            )
        try:
            self._socket.send(data, flags=zmq.DONTWAIT)
        except zmq.Again:
            if self._key is not None:  # ZeroMQ drops the queue of a connection whose key was refused
                self._mind_events()
            raise self._lost("its send queue is full") from None
        return len(data)

    def receive(self, timeout_s: float) -> tuple[Down, int] | None:
        """The next message and its size in bytes, or None after `timeout_s`.

        Malformed messages are counted, not raised. Raises LinkLost when the verifier closed the connection, KeyRefused
        when it does not take the key (any more).
        """
        if self._socket is None:
            raise LinkLost(f"the link to {self.address} is not connected: connect first")
        deadline = self._clock() + timeout_s
        while True:
            try:
                data = self._socket.recv(flags=zmq.DONTWAIT)
            except zmq.Again:
                remaining = deadline - self._clock()
                if remaining <= 0:
                    return None
                ready = dict(self._poller.poll(max(1, int(remaining * 1000 + 0.999))))
                if self._monitor in ready and self._socket not in ready:
                    self._mind_events()
                continue
            try:
                message = decode_down(data)
            except ProtocolError:
                self.malformed += 1
                continue
            if isinstance(message, ErrorDown) and message.code == ERROR_KEY:
                raise self._refused(message.message)
            return message, len(data)

    def reset(self) -> None:
        """Drop the connection; the next use makes a new one. What was on its way is gone."""
        self._welcome = None
        if self._socket is None:
            return
        self._poller = zmq.Poller()
        self._socket = self._monitor = None
        self._let_go()

    def close(self) -> None:
        """Drop the connection for good."""
        self.reset()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def silent(self, seconds: float) -> LinkLost:
        """Drop the connection because nothing was heard for so long; returns the error to raise."""
        return self._lost(f"nothing was heard for {seconds:.1f} s")

    def _lost(self, why: str) -> LinkLost:
        self.reset()
        return LinkLost(f"the link to {self.address} is lost, {why}: check the verifier and the network")

    def _refused(self, why: str) -> KeyRefused:
        self.reset()
        return KeyRefused(f"the verifier at {self.address} refused this edge: {why}")

    def _open_socket(self) -> None:
        self.reset()
        key = None if self._key is None else read_key(self._key)
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_DOWN_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        if key is not None:
            use_key(socket, key)
        monitor = socket.get_monitor_socket(_WATCHED)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            _close(socket, monitor)
            raise LinkLost(
                f"address {self.address!r} cannot be used ({error}): give tcp://HOST:PORT"
            ) from error
        self._socket, self._monitor = socket, monitor
        # Also for a link that nobody closes: the order of the garbage collector may be the wrong one.
        self._let_go = weakref.finalize(self, _close, socket, monitor)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def _mind_events(self) -> None:
        """Raise what the socket's events mean."""
        assert self._monitor is not None
        seen = 0
        while self._monitor.poll(0):
            seen |= recv_monitor_message(self._monitor)["event"]
        if seen & zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            remedy = "ask whoever runs it for a new one"
            raise self._refused(f"the key in {self._key} is not authorised, or revoked: {remedy}")
        if seen & _FAILED_HANDSHAKE and (why := self._why_no_handshake()):
            raise self._refused(why)
        if seen:
            raise self._lost("the verifier closed the connection")

    def _why_no_handshake(self) -> str:
        """What was wrong with the two sides' keys; "" where it is something else, like a verifier that ended."""
        theirs = mechanism_at(self.address)
        if self._key is None:
            return "it takes edges with keys only: give this one its key file" if theirs == "CURVE" else ""
        if theirs == "NULL":
            return f"it was started without keys, and {self._key} is for one with keys"
        if theirs == "CURVE":
            return f"its own key is not the one that {self._key} trusts: have the file exported again"
        return ""

    def _await_welcome(self, deadline: float, give_up: Callable[[], bool]) -> Welcome | None:
        while True:
            remaining = deadline - self._clock()
            if remaining <= 0 or give_up():
                return None
            try:
                received = self.receive(min(remaining, 0.1))
            except LinkLost:
                return None
            if received is None:
                continue
            message = received[0]
            if isinstance(message, Welcome):
                if message.version != PROTOCOL_VERSION:
                    self.reset()
                    raise VersionMismatch(_version_text(self.address, message.version))
                return message
            if isinstance(message, ErrorDown):
                self.reset()
                if message.code == ERROR_VERSION:
                    raise VersionMismatch(message.message)
                if message.code == ERROR_BUSY:
                    raise VerifierBusy(f"the verifier at {self.address} is busy: {message.message}")
                raise ProtocolError(f"the verifier at {self.address} refused: {message.message}")


def _close(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
    """Close both, what is told first: an event for a monitor that is closed would stop ZeroMQ's own thread, and with it
    all sockets of the process.
    """
    socket.disable_monitor()
    monitor.close(linger=0)
    socket.close(linger=_LINGER_MS)


def _version_text(address: str, theirs: int) -> str:
    return (
        f"the verifier at {address} speaks version {theirs} of the protocol and this edge version "
        f"{PROTOCOL_VERSION}: install the same release on both sides"
    )

# SPDX-License-Identifier: Apache-2.0
"""One ZeroMQ DEALER socket with its monitor: bytes go out, bytes come in, and a connection that ends is noticed.

Knows addresses, keys and time; nothing of what the bytes mean. What serves at the other end is named by its owner, so
that errors say "the verifier" or "the directory".
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from specdec.errors import KeyRefused, LinkLost
from specdec.link.binding import check_address
from specdec.link.greeting import mechanism_at
from specdec.link.keys import read_key, use_key

_HIGH_WATER_MARK = 1000
_LINGER_MS = 100
_FAILED_HANDSHAKE = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _FAILED_HANDSHAKE


class Dealer:
    """A socket that is opened, and opened again after it was lost. One thread at a time."""

    def __init__(
        self,
        what: str,
        max_bytes: int,
        key: str | Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """what: who is at the other end, in errors. max_bytes: of a message that comes. key: file of this edge's key,
        read again with every open().
        """
        self.what = what
        self.address = ""
        self._max_bytes = max_bytes
        self._key = key
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._let_go: Callable[[], object] = lambda: None
        self._poller = zmq.Poller()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket; nothing has to be at its other end."""
        return self._socket is not None

    def open(self, address: str) -> None:
        """A new socket towards tcp://HOST:PORT, in the place of the one before. Raises LinkLost for an address that
        cannot be used, OptionsError for a key file that cannot.
        """
        self.close()
        self.address = address
        check_address(address, error=LinkLost)
        key = None if self._key is None else read_key(self._key)
        socket = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.RCVHWM, _HIGH_WATER_MARK)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.setsockopt(zmq.MAXMSGSIZE, self._max_bytes)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 500)
        if key is not None:
            use_key(socket, key)
        monitor = socket.get_monitor_socket(_WATCHED)
        try:
            socket.connect(address)
        except zmq.ZMQError as error:
            _close(socket, monitor)
            raise LinkLost(f"address {address!r} cannot be used ({error}): give tcp://HOST:PORT") from error
        self._socket, self._monitor = socket, monitor
        # Also for a socket that is never closed: the order of the garbage collector may be the wrong one.
        self._let_go = weakref.finalize(self, _close, socket, monitor)
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def send(self, data: bytes) -> None:
        """Hand a message over. Raises LinkLost where ZeroMQ takes no more."""
        try:
            self._opened().send(data, flags=zmq.DONTWAIT)
        except zmq.Again:
            if self._key is not None:  # ZeroMQ drops the queue of a connection whose key was refused
                self._mind_events()
            raise self.lost("its send queue is full") from None

    def receive(self, timeout_s: float) -> bytes | None:
        """The next message, or None after `timeout_s`. Raises LinkLost when the other side closed the connection,
        KeyRefused when it does not take the key (any more).
        """
        socket = self._opened()
        deadline = self._clock() + timeout_s
        while True:
            try:
                return socket.recv(flags=zmq.DONTWAIT)
            except zmq.Again:
                remaining = deadline - self._clock()
                if remaining <= 0:
                    return None
                ready = dict(self._poller.poll(max(1, int(remaining * 1000 + 0.999))))
                if self._monitor in ready and socket not in ready:
                    self._mind_events()

    def close(self) -> None:
        """Drop the connection; what was on its way is gone."""
        if self._socket is None:
            return
        self._poller = zmq.Poller()
        self._socket = self._monitor = None
        self._let_go()

    def lost(self, why: str) -> LinkLost:
        """Drop the connection; returns the error to raise."""
        self.close()
        return LinkLost(f"the link to {self.address} is lost, {why}: check {self.what} and the network")

    def refused(self, why: str) -> KeyRefused:
        """Drop the connection of a key that is not taken; returns the error to raise."""
        self.close()
        return KeyRefused(f"{self.what} at {self.address} refused this edge: {why}")

    def _opened(self) -> zmq.Socket[bytes]:
        if self._socket is None:
            raise LinkLost(f"the link to {self.address} is not connected: connect first")
        return self._socket

    def _mind_events(self) -> None:
        """Raise what the socket's events mean."""
        assert self._monitor is not None
        seen = 0
        while self._monitor.poll(0):
            seen |= recv_monitor_message(self._monitor)["event"]
        if seen & zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            remedy = "ask its operator for a new one"
            raise self.refused(f"the key in {self._key} is not authorised, or revoked: {remedy}")
        if seen & _FAILED_HANDSHAKE and (why := self._why_no_handshake()):
            raise self.refused(why)
        if seen:
            raise self.lost(f"{self.what} closed the connection")

    def _why_no_handshake(self) -> str:
        """What was wrong with the two sides' keys; "" where it is something else, like a server that ended."""
        theirs = mechanism_at(self.address)
        if self._key is None:
            return "it takes edges with keys only: give this one its key file" if theirs == "CURVE" else ""
        if theirs == "NULL":
            return f"it was started without keys, and {self._key} is for one with keys"
        if theirs == "CURVE":
            return f"its own key is not the one that {self._key} trusts: have the file exported again"
        return ""


def _close(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes]) -> None:
    """Close both, what is told first: an event for a monitor that is closed would stop ZeroMQ's own thread, and with it
    all sockets of the process.
    """
    socket.disable_monitor()
    monitor.close(linger=0)
    socket.close(linger=_LINGER_MS)

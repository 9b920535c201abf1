# SPDX-License-Identifier: Apache-2.0
"""One ZeroMQ DEALER socket with its monitor: sends and receives bytes, and detects a closed connection.

Handles addresses, keys and time, not the meaning of the bytes. The owner names the peer, so that errors say "the
verifier" or "the directory".
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from specdec.errors import KeyRefused, LinkLost, OptionsError
from specdec.link.binding import check_address, is_ipv6
from specdec.link.greeting import mechanism_at
from specdec.link.keys import read_key, use_key

_HIGH_WATER_MARK = 1000
_LINGER_MS = 100
_FAILED_HANDSHAKE = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
_WATCHED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _FAILED_HANDSHAKE


class Dealer:
    """A socket that can be reopened after it was lost. One thread at a time."""

    def __init__(
        self,
        what: str,
        max_bytes: int,
        key: str | Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """what: name of the peer in errors. max_bytes: most bytes of a received message. key: file with this edge's
        key, read again at every open().
        """
        self.what = what
        self.address = ""
        self._max_bytes = max_bytes
        self._key = key
        self._clock = clock
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._let_go: Callable[[], object] = lambda: None
        self._process = 0
        self._poller = zmq.Poller()

    @property
    def is_open(self) -> bool:
        """Whether a socket exists; the peer need not be connected."""
        return self._socket is not None and not self.is_inherited

    @property
    def is_inherited(self) -> bool:
        """Whether a parent process opened the socket: it has no use here, as ZeroMQ's threads are not forked."""
        return self._socket is not None and self._process != os.getpid()

    def open(self, address: str) -> None:
        """Replace the socket by a new one that connects to tcp://HOST:PORT. Raises LinkLost for an unusable address,
        KeyRefused for a key file that cannot be used any more.
        """
        self.close()
        self.address = address
        check_address(address, error=LinkLost)
        try:
            key = None if self._key is None else read_key(self._key)
        except OptionsError as error:  # it was good when the edge started: no option of the present answer is wrong
            raise KeyRefused(str(error)) from error
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.IPV6, is_ipv6(address))
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
            _close(socket, monitor, os.getpid())
            raise LinkLost(f"address {address!r} cannot be used ({error}): give tcp://HOST:PORT") from error
        self._socket, self._monitor, self._process = socket, monitor, os.getpid()
        # Also closes sockets that are never closed explicitly: garbage collection may use the wrong order.
        self._let_go = weakref.finalize(self, _close, socket, monitor, os.getpid())
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(monitor, zmq.POLLIN)

    def send(self, data: bytes) -> None:
        """Send a message. Raises LinkLost if the send queue is full."""
        try:
            self._opened().send(data, flags=zmq.DONTWAIT)
        except zmq.Again:
            if self._key is not None:  # ZeroMQ drops the queue of a connection whose key was refused
                self._mind_events()
            raise self.lost("its send queue is full") from None

    def receive(self, timeout_s: float) -> bytes | None:
        """The next message, or None after `timeout_s`. Raises LinkLost if the peer closed the connection, KeyRefused if
        it does not accept the key (any more).
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
        """Drop the connection and messages in transit."""
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
        """Drop the connection because the key was refused; returns the error to raise."""
        self.close()
        return KeyRefused(f"{self.what} at {self.address} refused this edge: {why}")

    def _opened(self) -> zmq.Socket[bytes]:
        if self._socket is None:
            raise LinkLost(f"the link to {self.address} is not connected: connect first")
        if self.is_inherited:
            raise self.lost("it belongs to the parent process")
        return self._socket

    def _mind_events(self) -> None:
        """Read the socket's events, and raise the error that they stand for."""
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
        """Why the keys of the two sides do not fit; "" if the cause is something else, like a server that exited."""
        theirs = mechanism_at(self.address)
        if self._key is None:
            return "it accepts only edges with keys: give this edge its key file" if theirs == "CURVE" else ""
        if theirs == "NULL":
            return f"it was started without keys, and {self._key} is for a verifier with keys"
        if theirs == "CURVE":
            return f"its key is not the one that {self._key} trusts: have the file exported again"
        return ""


def _close(socket: zmq.Socket[bytes], monitor: zmq.Socket[bytes], process: int) -> None:
    """Close both, the monitor first; do nothing in a child of the process that opened them. An event for a closed
    monitor would stop ZeroMQ's I/O thread and thereby all sockets of the process, so monitoring is disabled before.
    """
    if process != os.getpid():
        return
    socket.disable_monitor()
    monitor.close(linger=0)
    socket.close(linger=_LINGER_MS)

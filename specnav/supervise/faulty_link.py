# SPDX-License-Identifier: Apache-2.0
"""A man-in-the-middle proxy between vlm_nav_node and the verifier, which injects faults into the link.

It can cut the link, and delay, repeat, corrupt or re-address messages. A thread runs a ROUTER socket for edges and one
DEALER socket to the verifier per edge connection. Unlike the link emulator, the proxy parses messages, so a fault can
strike at a chosen point of a decision. As with TCP, messages sent during a cut are held and delivered afterwards. When
the verifier goes, the connections of all edges are closed.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
import time
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import recv_monitor_message

from specnav.supervise.meddling import Meddler, untouched
from specnav.supervise.points import DecisionPoint, Watcher

MOST_CLIENTS = 200
REBIND_S = 0.01


@dataclass
class _LinkClient:
    """The connection of an edge, and the one to the verifier that belongs to it."""

    back: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    descriptor: int  # file descriptor of the edge's connection
    watcher: Watcher = field(default_factory=Watcher)
    gone: bool = False  # the edge has closed it; messages sent before are still delivered


@dataclass(frozen=True)
class _DelayedMessage:
    """A message in transit."""

    identity: bytes
    up: bool
    frames: list[bytes]


class FaultyLink:
    """The link of a drill; every public method may be called from any thread. Use it as a context manager."""

    def __init__(self, verifier: str) -> None:
        """Create the link; it starts on entering the context.

        Args:
            verifier: tcp://HOST:PORT; nothing need listen there yet.
        """
        self._verifier = verifier
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open_front()
        self._front.bind("tcp://127.0.0.1:*")
        self.address: str = self._front.getsockopt_string(zmq.LAST_ENDPOINT)
        self._clients: dict[bytes, _LinkClient] = {}
        self._lock = threading.Lock()
        self._shut = False
        self._waiting: list[_DelayedMessage] = []  # messages held by a cut
        self._due: list[tuple[float, int, _DelayedMessage]] = []
        self._order = itertools.count()
        self._meddler: Meddler = untouched
        self._point: DecisionPoint | None = None
        self._reached = threading.Event()
        self._ending = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        self._thread = threading.Thread(target=self._run, name="faulty-link", daemon=True)

    def __enter__(self) -> FaultyLink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        self._wake()
        self._thread.join(5)
        os.close(self._wake_read)
        os.close(self._wake_write)

    # -- for drills

    def shut(self) -> None:
        """Cut the link: messages are held from now on."""
        with self._lock:
            self._shut = True

    def open(self) -> None:
        """End a cut and deliver the messages it held."""
        with self._lock:
            self._shut = False
            self._point = None
        self._wake()

    def meddle(self, meddler: Meddler = untouched) -> None:
        """Apply a function to every message of the verifier from now on."""
        with self._lock:
            self._meddler = meddler

    def shut_at(self, point: DecisionPoint) -> threading.Event:
        """Cut the link when a decision reaches a point.

        An edge's message that brings it there is held; a verdict passes.

        Args:
            point: Where to cut.

        Returns:
            An event that is set once the point is reached.
        """
        with self._lock:
            self._point, self._reached = point, threading.Event()
            return self._reached

    @property
    def connections(self) -> int:
        """Number of open connections to the verifier."""
        return len(self._clients)

    # -- the thread

    def _wake(self) -> None:
        os.write(self._wake_write, b"x")

    def _open_front(self) -> None:
        self._front: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._front.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._front.setsockopt(zmq.LINGER, 0)
        self._front_monitor: zmq.Socket[bytes] = self._front.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def _close_front(self) -> None:
        self._front.disable_monitor()
        self._front_monitor.close(linger=0)
        self._front.close(linger=0)

    def _run(self) -> None:
        while not self._ending:
            self._wait()
            if any(self._has_lost(client) for client in self._clients.values()):
                self._sever()
            while self._take() | self._deliver():
                pass
            self._let_go()
        for client in self._clients.values():
            self._close(client)
        self._close_front()
        self._context.term()

    def _wait(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wake_read, zmq.POLLIN)
        poller.register(self._front, zmq.POLLIN)
        poller.register(self._front_monitor, zmq.POLLIN)
        for client in self._clients.values():
            poller.register(client.back, zmq.POLLIN)
            poller.register(client.monitor, zmq.POLLIN)
        timeout = max(0.0, self._due[0][0] - time.monotonic()) * 1e3 if self._due else None
        poller.poll(None if timeout is None else int(timeout) + 1)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 1000)

    def _take(self) -> bool:
        moved = False
        while True:
            try:
                parts = self._front.recv_multipart(flags=zmq.DONTWAIT, copy=False)
            except zmq.Again:
                break
            moved = True
            identity = parts[0].bytes
            self._client(identity).descriptor = int(parts[-1].get(zmq.SRCFD))
            self._pass(_DelayedMessage(identity, True, [part.bytes for part in parts[1:]]))
        for identity, client in list(self._clients.items()):
            while identity in self._clients:  # sending to an edge that has gone removes its entry
                try:
                    frames = client.back.recv_multipart(flags=zmq.DONTWAIT)
                except zmq.Again:
                    break
                moved = True
                self._pass(_DelayedMessage(identity, False, frames))
        return moved

    def _pass(self, held: _DelayedMessage) -> None:
        """Forward a message, unless the link is cut, or this message triggers a cut."""
        with self._lock:
            if held.up and not self._shut and self._is_the_point(held):
                self._shut = True
                self._reached.set()
            if self._shut:
                self._waiting.append(held)
                return
        self._forward(held)
        with self._lock:
            if not held.up and self._is_the_point(held):
                self._shut = True
                self._reached.set()

    def _is_the_point(self, held: _DelayedMessage) -> bool:
        client = self._client(held.identity) if held.up else self._clients.get(held.identity)
        if client is None:
            return False
        watcher = client.watcher
        reached = watcher.up(held.frames[-1]) if held.up else watcher.down(held.frames[-1])
        if reached is None or reached is not self._point:
            return False
        self._point = None
        return True

    def _deliver(self) -> bool:
        """Send messages held by a cut that has ended, and delayed ones that are due."""
        with self._lock:
            ready = [] if self._shut else self._waiting
            if ready:
                self._waiting = []
        for held in ready:
            self._forward(held)
        moved = bool(ready)
        while self._due and self._due[0][0] <= time.monotonic():
            self._send(heapq.heappop(self._due)[2])
            moved = True
        return moved

    def _forward(self, held: _DelayedMessage) -> None:
        if held.up:
            self._send(held)
            return
        for delay, data in self._meddler(held.frames[-1]):
            item = _DelayedMessage(held.identity, False, [*held.frames[:-1], data])
            if delay <= 0:
                self._send(item)
            else:
                heapq.heappush(self._due, (time.monotonic() + delay, next(self._order), item))

    def _send(self, held: _DelayedMessage) -> None:
        if held.up:
            with contextlib.suppress(zmq.Again):
                self._client(held.identity).back.send_multipart(held.frames, flags=zmq.DONTWAIT)
            return
        try:
            self._front.send_multipart([held.identity, *held.frames], flags=zmq.DONTWAIT)
        except zmq.ZMQError:  # the edge has gone: close its connection to the verifier too
            if (client := self._clients.pop(held.identity, None)) is not None:
                self._close(client)

    def _client(self, identity: bytes) -> _LinkClient:
        if identity not in self._clients:
            if len(self._clients) >= MOST_CLIENTS:
                self._close(self._clients.pop(next(iter(self._clients))))
            back = self._context.socket(zmq.DEALER)
            back.setsockopt(zmq.LINGER, 0)
            back.setsockopt(zmq.RECONNECT_IVL, 20)
            back.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
            monitor = back.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            back.connect(self._verifier)
            self._clients[identity] = _LinkClient(back, monitor, -1)
        return self._clients[identity]

    def _let_go(self) -> None:
        """Close the sockets of edges that have disconnected, once none of their messages is in transit."""
        while self._front_monitor.poll(0):
            closed = int(recv_monitor_message(self._front_monitor)["value"])
            for client in self._clients.values():
                client.gone |= client.descriptor == closed
        with self._lock:
            busy = {held.identity for held in self._waiting} | {item[2].identity for item in self._due}
        for identity in [i for i, client in self._clients.items() if client.gone and i not in busy]:
            self._close(self._clients.pop(identity))

    def _has_lost(self, client: _LinkClient) -> bool:
        lost = False
        while client.monitor.poll(0):
            lost |= recv_monitor_message(client.monitor)["event"] == zmq.EVENT_DISCONNECTED
        return lost

    def _close(self, client: _LinkClient) -> None:
        client.back.disable_monitor()
        client.monitor.close(linger=0)
        client.back.close(linger=0)

    def _sever(self) -> None:
        """Handle the loss of the verifier: drop the edges' connections and all messages in transit."""
        for client in self._clients.values():
            self._close(client)
        self._clients.clear()
        self._due.clear()
        with self._lock:
            self._waiting.clear()
        self._close_front()
        self._open_front()
        while not self._ending:
            try:
                self._front.bind(self.address)
                return
            except zmq.ZMQError:  # closing the old socket takes a moment
                time.sleep(REBIND_S)

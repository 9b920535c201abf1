# SPDX-License-Identifier: Apache-2.0
"""Emulates a bad network between edge and cloud: a proxy process that delays every message by a link model.

`python -m specdec.link.emulator --listen tcp://127.0.0.1:A --connect tcp://127.0.0.1:B --rtt MS ...`. It forwards whole
ZeroMQ messages without reading them, so the same programs run with and without it.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import select
import signal
import sys
import time
from types import FrameType

import zmq

from specdec.errors import OptionsError
from specdec.link.binding import is_ipv6, is_loopback
from specdec.link.directory_wire import SCHEME
from specdec.link.keys import EdgeKey, read_key, use_key
from specdec.link.router import bind_router, new_router
from specdec.link.shaping import Direction, LinkProfile, parse_outages
from specdec.settings import add_arguments, settings_of

_MAX_CLIENTS = 1000


class Emulator:
    """Proxy with one ROUTER towards the edges and one DEALER per edge towards the verifier."""

    def __init__(
        self, listen: str, connect: str, profile: LinkProfile, seed: int = 0, key: EdgeKey | None = None
    ) -> None:
        """Bind `listen`. key: for a verifier with keys; edges then connect without one. Raises OptionsError for an
        unusable address.
        """
        self._key = key
        self._connect_address = connect
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._front = new_router(self._context)
        self._front.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._front.setsockopt(zmq.LINGER, 0)
        try:
            bind_router(self._front, listen, OptionsError)
        except OptionsError:
            self._context.destroy(linger=0)
            raise
        self.listen: str = self._front.getsockopt_string(zmq.LAST_ENDPOINT)
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        # Disconnected edges leave their sockets behind, so only sockets with events are read.
        self._watch = select.epoll()
        self._watched: dict[int, bytes] = {}
        self._stirred: set[bytes] = set()
        self._up = Direction(profile, seed)
        self._down = Direction(profile, seed + 1)
        self._held: list[tuple[float, int, bytes, bool, list[bytes]]] = []
        self._order = itertools.count()
        self._start = time.monotonic()
        self._stopping = False

    def stop(self) -> None:
        """Make run() return; for use in a signal handler of the same thread."""
        self._stopping = True

    def run(self) -> None:
        """Forward messages until stop()."""
        # A signal must end the wait below at once, even without messages.
        wake_read, wake_write = _pipe()
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        try:
            while not self._stopping:
                # Sending and receiving may consume a socket's readiness signal, so repeat until nothing moves.
                while self._take() | self._pass_on():
                    pass
                timeout = None if not self._held else max(0.0, self._held[0][0] - self._now())
                # epoll waits in whole milliseconds; a select on its descriptor does not.
                select.select([wake_read, int(self._front.FD), self._watch.fileno()], [], [], timeout)
                self._stirred.update(self._watched[fd] for fd, _ in self._watch.poll(0))
        finally:
            signal.set_wakeup_fd(-1)
            self._watch.close()
            self._context.destroy(linger=0)

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _take(self) -> bool:
        """Receive all queued messages and schedule them."""
        moved = False
        while True:
            try:
                identity, *frames = self._front.recv_multipart(flags=zmq.DONTWAIT)
            except zmq.Again:
                break
            moved = True
            self._hold(self._up, identity, True, frames)
        for identity in self._stirred:
            back = self._backs[identity]
            while True:
                try:
                    frames = back.recv_multipart(flags=zmq.DONTWAIT)
                except zmq.Again:
                    break
                moved = True
                self._hold(self._down, identity, False, frames)
        self._stirred.clear()
        return moved

    def _hold(self, direction: Direction, identity: bytes, up: bool, frames: list[bytes]) -> None:
        arrival = direction.arrival(self._now(), sum(len(frame) for frame in frames))
        heapq.heappush(self._held, (arrival, next(self._order), identity, up, frames))

    def _pass_on(self) -> bool:
        """Send all messages that are due."""
        moved = False
        while self._held and self._held[0][0] <= self._now():
            _, _, identity, up, frames = heapq.heappop(self._held)
            moved = True
            if up:
                self._back(identity).send_multipart(frames)
                self._stirred.add(identity)
                continue
            try:
                self._front.send_multipart([identity, *frames], flags=zmq.DONTWAIT)
            except zmq.ZMQError:  # this edge is gone, so close its connection to the verifier
                self._forget(identity)
                self._held = [held for held in self._held if held[2] != identity]
                heapq.heapify(self._held)
        return moved

    def _back(self, identity: bytes) -> zmq.Socket[bytes]:
        if identity not in self._backs:
            if len(self._backs) >= _MAX_CLIENTS:
                self._forget(next(iter(self._backs)))
            socket = self._context.socket(zmq.DEALER)
            socket.setsockopt(zmq.IPV6, is_ipv6(self._connect_address))
            socket.setsockopt(zmq.RECONNECT_IVL, 20)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
            if self._key is not None:
                use_key(socket, self._key)
            socket.connect(self._connect_address)
            self._backs[identity] = socket
            self._watched[int(socket.FD)] = identity
            self._watch.register(int(socket.FD), select.EPOLLIN)
        return self._backs[identity]

    def _forget(self, identity: bytes) -> None:
        back = self._backs.pop(identity, None)
        if back is None:  # it was dropped as the oldest of too many
            return
        self._watch.unregister(int(back.FD))
        del self._watched[int(back.FD)]
        self._stirred.discard(identity)
        back.close(linger=0)


def _pipe() -> tuple[int, int]:
    import os

    read, write = os.pipe()
    os.set_blocking(write, False)
    return read, write


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec.link.emulator", description="Emulate a link between two processes."
    )
    parser.add_argument(
        "--listen", required=True, help="where edges connect, tcp://HOST:PORT (port 0: a free one)"
    )
    parser.add_argument("--connect", required=True, help="where the verifier is, tcp://HOST:PORT")
    parser.add_argument(
        "--key", default="", metavar="FILE", help="key for a verifier with keys; edges then connect without"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="with --key, listen where other machines can use that key without one"
    )
    add_arguments(parser, LinkProfile)
    parser.add_argument(
        "--outage", action="append", default=[], metavar="START:DURATION", help="seconds; repeatable"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; prints one JSON line on stderr when ready."""
    given = build_parser().parse_args(arguments)
    try:
        if given.connect.startswith(SCHEME):
            raise OptionsError("the emulator connects to one verifier, not to a fleet: give tcp://HOST:PORT")
        if given.key and not given.insecure and not is_loopback(given.listen):
            raise OptionsError(
                f"--listen must be on loopback with --key, got {given.listen}: every caller would use that key; "
                "give edges their own keys and leave --key out, or add --insecure"
            )
        told = {name: value for name, value in vars(given).items() if name in settings_of(LinkProfile)}
        profile = LinkProfile(**told, outages=parse_outages(given.outage))
        key = read_key(given.key) if given.key else None
        emulator = Emulator(given.listen, given.connect, profile, given.seed, key)
    except OptionsError as error:
        print(f"emulator: error: {error}", file=sys.stderr)
        return 1

    def on_signal(number: int, frame: FrameType | None) -> None:
        emulator.stop()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, on_signal)
    print(
        json.dumps({"event": "ready", "bind": emulator.listen, "connect": given.connect}),
        file=sys.stderr,
        flush=True,
    )
    emulator.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A TCP proxy that tests can cut, and a verifier in this process that it leads to."""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import threading
import time
from collections.abc import Callable


class CuttableProxy:
    """Passes bytes between a local port and a verifier's.

    cut(): every connection is closed and new ones are refused, as when a process or an access point dies.
    silence(): connections stay open and nothing goes through, as when a robot leaves the radio's reach; what was sent
    meanwhile is lost with the connection at heal(), which ends either.
    """

    def __init__(self, target: str) -> None:
        self._target = _host_and_port(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.accepted = 0
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._state = "pass"
        self._wishes: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._end = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._have_done(self._cut)

    def silence(self) -> None:
        self._have_done(self._silence)

    def heal(self) -> None:
        self._have_done(self._heal)

    def close(self) -> None:
        self._have_done(self._close)
        self._thread.join(5)

    def _have_done(self, wish: Callable[[], None]) -> None:
        """The proxy's own thread does it, before anything else goes through; returns when it is done."""
        done = threading.Event()
        self._wishes.put((wish, done))
        assert done.wait(5)

    def _cut(self) -> None:
        self._state = "cut"
        self._drop_all()
        self._listener.close()

    def _silence(self) -> None:
        self._state = "silent"

    def _heal(self) -> None:
        if self._state == "silent":
            self._drop_all()
        elif self._state == "cut":
            self._listener = socket.create_server(("127.0.0.1", self._port))
        self._state = "pass"

    def _close(self) -> None:
        self._end = True
        self._drop_all()
        self._listener.close()

    def _drop_all(self) -> None:
        for pair in self._pairs:
            for one in pair:
                one.close()
        self._pairs.clear()

    def _run(self) -> None:
        while not self._end:
            while not self._wishes.empty():
                wish, done = self._wishes.get()
                wish()
                done.set()
            if self._state == "pass" and not self._end:
                self._turn()
            else:
                time.sleep(0.002)

    def _turn(self) -> None:
        other = {a: b for pair in self._pairs for a, b in (pair, pair[::-1])}
        ready, _, _ = select.select([self._listener, *other], [], [], 0.005)
        for one in ready:
            if one is self._listener:
                with contextlib.suppress(OSError):
                    self._pairs.append((one.accept()[0], socket.create_connection(self._target, 1.0)))
                    self.accepted += 1
                    for end in self._pairs[-1]:
                        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                continue
            data = b""
            with contextlib.suppress(OSError):
                data = one.recv(1 << 16)
            with contextlib.suppress(OSError):
                other[one].sendall(data)
            if not data:
                gone = [pair for pair in self._pairs if one in pair]
                for pair in gone:
                    self._pairs.remove(pair)
                    for end in pair:
                        end.close()
                return


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp://").partition(":")
    return host, int(port)


def until(true, timeout_s: float = 5.0) -> bool:
    """Wait until true() is; whether it became so."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True

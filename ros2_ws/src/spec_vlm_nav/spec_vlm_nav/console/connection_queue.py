# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The queue of accepted connections that the front does not serve yet. It knows nothing of pages.

Every connection is accepted at once: one left in the kernel's queue could delay a STOP behind it. A
STOP request with complete headers is served at once. Other connections are served at a limited
rate, round-robin over their addresses. Silent connections and those beyond the limits are closed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
import socket

from spec_vlm_nav.console.access import MessageBucket

AT_ONCE = 8  # connections accepted per event-loop cycle
STOP_REQUEST, TLS_HANDSHAKE = b"POST /stop", b"\x16"
SERVED_A_S = 100.0  # connections served a second, STOP requests not counted
RETRY_S = 0.01
Serve = Callable[[socket.socket], None]


class ConnectionQueue:
    """
    Accepts the connections of a listening socket.

    serve: called with each connection at its turn.
    most: largest number of silent connections, and of waiting ones. Beyond it, the oldest silent
    connection or the newest waiting one is closed.
    silent_s: how long a connection may stay silent.
    secured: connections begin with a TLS handshake, so STOP requests cannot be recognised.
    head_bytes: how many bytes of a connection are examined.
    """

    def __init__(
        self,
        listening: socket.socket,
        serve: Serve,
        most: int,
        silent_s: float,
        secured: bool,
        head_bytes: int,
    ) -> None:
        self._listening, self._serve, self._most = listening, serve, most
        self._silent_s, self._secured, self._head_bytes = silent_s, secured, head_bytes
        self._silent: OrderedDict[socket.socket, tuple[str, asyncio.TimerHandle]] = OrderedDict()
        self._waiting: OrderedDict[str, list[socket.socket]] = OrderedDict()  # by address
        self._count = 0
        self._due: asyncio.TimerHandle | None = None  # serves the next ones
        self._retry: asyncio.TimerHandle | None = None  # accepts again
        self._rate = MessageBucket(SERVED_A_S, 2 * SERVED_A_S)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Stop accepting, and close all queued connections."""
        self._loop.remove_reader(self._listening)
        for timer in (self._due, self._retry):
            if timer is not None:
                timer.cancel()
        for one in list(self._silent):
            self._heard(one)
            one.close()
        for one in (one for each in self._waiting.values() for one in each):
            one.close()
        self._waiting.clear()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                one, peer = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptor is left
                self._make_room()
                self._loop.remove_reader(self._listening)
                self._retry = self._loop.call_later(
                    RETRY_S, self._loop.add_reader, self._listening, self._accept
                )
                return
            one.setblocking(False)
            address = str(peer[0]) if peer else ""
            if not self._look(one, address):
                if len(self._silent) >= self._most:
                    self._make_room()
                timer = self._loop.call_later(self._silent_s, self._give_up, one)
                self._silent[one] = address, timer
                self._loop.add_reader(one, self._spoke, one)

    def _look(self, one: socket.socket, address: str) -> bool:
        """Serve, queue or close a connection by its first bytes; returns whether it sent any."""
        try:
            said = one.recv(self._head_bytes, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            said = b""
        if not said or (self._secured and not said.startswith(TLS_HANDSHAKE)):
            one.close()
        elif not self._secured and said.startswith(STOP_REQUEST) and b"\r\n\r\n" in said:
            self._serve(one)
        elif self._count >= self._most and not self._leave_for(address):
            one.close()
        else:
            self._waiting.setdefault(address, []).append(one)
            self._count += 1
            self._next()
        return True

    def _spoke(self, one: socket.socket) -> None:
        address = self._heard(one)
        self._look(one, address)

    def _heard(self, one: socket.socket) -> str:
        """Remove a connection from the silent ones; returns its address."""
        address, timer = self._silent.pop(one)
        timer.cancel()
        self._loop.remove_reader(one)
        return address

    def _give_up(self, one: socket.socket) -> None:
        self._heard(one)
        one.close()

    def _make_room(self) -> None:
        if self._silent:
            self._give_up(next(iter(self._silent)))

    def _leave_for(self, address: str) -> bool:
        """Close a waiting connection of the most crowded address, if `address` has fewer."""
        crowded = max(self._waiting.values(), key=len)
        if len(crowded) <= len(self._waiting.get(address, ())) + 1:
            return False
        crowded.pop().close()
        self._count -= 1
        return True

    def _next(self) -> None:
        """Serve waiting connections as the rate allows, and schedule the rest."""
        if self._due is not None:
            return
        while self._count:
            address, those = self._waiting.popitem(last=False)
            one = those.pop(0)
            self._count -= 1
            if those:
                self._waiting[address] = those
            wait = self._rate.debt(self._loop.time(), 1)
            self._serve(one)
            if wait > 0:
                self._due = self._loop.call_later(wait, self._again)
                return

    def _again(self) -> None:
        self._due = None
        self._next()

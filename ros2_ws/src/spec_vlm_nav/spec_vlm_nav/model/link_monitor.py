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
Monitors the link to the verifier over a separate connection.

Its thread pings the verifier a few times a second and reconnects for as long as needed. It does not
disturb decoding: a ping has a few bytes, and no lock is shared.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.model.decider import LinkReport
from specdec.errors import LinkLost, SpecdecError
from specdec.link.channel import Link
from specdec.link.wire import Ping, Pong

PING_INTERVAL_S = 0.25
_PINGS_PER_TIMEOUT = 4
_STEP_S = 0.05
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_SMOOTHING = 0.125  # weight of a new RTT in the average, as in TCP


class LinkMonitor:
    """
    Reports the link as UP if the verifier was heard within `timeout_s`, else as LOST.

    Before the first message it is UNKNOWN for `timeout_s`.

    losses: how often it became LOST. connections: how often it connected; after a reconnect, other
    connections to the verifier may be dead, too.

    on_change: called from the monitor's thread at every change, at most 0.1 s late; it must not
    block.
    """

    def __init__(
        self,
        address: str,
        timeout_s: float,
        connect_timeout_s: float = 1.0,
        on_change: Callable[[LinkState], None] = lambda state: None,
        key: str | None = None,
    ) -> None:
        """
        Start watching.

        connect_timeout_s: longest duration of one connection attempt; a pause follows.
        key: file of this robot's key, read again at every attempt; None: no encryption.
        """
        self.timeout_s = timeout_s
        self.losses = 0
        self.connections = 0
        self._address = address
        self._key = key
        self._connect_timeout_s = max(connect_timeout_s, 0.05)
        self._on_change = on_change
        self._began = time.monotonic()
        self._heard_at: float | None = None
        self._rtt_s: float | None = None
        self._trouble = ""
        self._refused = False
        self._state = LinkState.UNKNOWN
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link monitor", daemon=True)
        self._thread.start()

    def report(self) -> LinkReport:
        """Return the link's state; may be called from any thread."""
        now, heard_at, rtt_s = time.monotonic(), self._heard_at, self._rtt_s or 0.0
        since = self._began if heard_at is None else heard_at
        if not self._refused and now - since <= self.timeout_s:
            state = LinkState.UNKNOWN if heard_at is None else LinkState.UP
            return LinkReport(state, rtt_s * 1e3, heard_at)
        silence = f"nothing was heard from the verifier at {self._address} for {now - since:.1f} s"
        return LinkReport(LinkState.LOST, rtt_s * 1e3, heard_at, self._trouble or silence)

    def heard(self) -> None:
        """Record that the verifier was heard on another connection; from any thread."""
        self._heard_at = time.monotonic()

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread and its connection."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        timeouts = (self._connect_timeout_s, self.timeout_s, self.timeout_s)
        with Link(self._address, *timeouts, key=self._key) as link:
            while not self._over():
                before = self._heard_at
                try:
                    self._watch(link)
                except LinkLost as error:
                    self._trouble = str(error)
                except SpecdecError as error:  # the peer answers but is not a usable verifier
                    self._trouble, self._refused = str(error), True
                link.reset()
                pause_s = _FIRST_PAUSE_S if self._heard_at != before else min(2 * pause_s, _LONGEST_PAUSE_S)
                self._wait(pause_s)

    def _watch(self, link: Link) -> None:
        """Ping and listen until closed. Raises LinkLost and the other errors of Link."""
        link.ensure_connected(self._over)
        self.connections += 1
        self._hear()
        self._rtt_s = None
        while not self._over():
            asked = time.monotonic()
            link.send(Ping(0))
            self._await_pong(link, asked)
            self._wait(self._interval_s() - (time.monotonic() - asked))

    def _await_pong(self, link: Link, asked: float) -> None:
        while not self._over():
            received = link.receive(_STEP_S)
            now = time.monotonic()
            if received is not None and isinstance(received[0], Pong):
                self._hear()
                rtt_s = now - asked
                self._rtt_s = (
                    rtt_s if self._rtt_s is None else self._rtt_s + _SMOOTHING * (rtt_s - self._rtt_s)
                )
                return
            if now - asked > self.timeout_s:
                raise link.silent(now - asked)

    def _interval_s(self) -> float:
        return min(PING_INTERVAL_S, self.timeout_s / _PINGS_PER_TIMEOUT)

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        self._trouble, self._refused = "", False
        self._over()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._over() and (rest := until - time.monotonic()) > 0:
            self._stop.wait(min(rest, _STEP_S))

    def _over(self) -> bool:
        """Return whether to end; calls on_change if the state has changed."""
        if self._stop.is_set():
            return True
        state = self.report().state
        if state is not self._state:
            self._state = state
            self.losses += state is LinkState.LOST
            self._on_change(state)
        return False

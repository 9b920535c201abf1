# SPDX-License-Identifier: Apache-2.0
"""Counters of a running verifier: heartbeats of its loops, work of its engine, and usage of each client and session.

Each number is written by one thread only and read on request, so counting is a plain addition without locks.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud_verifier.logs import EventLog

BEAT_S = 1.0
"""An idle loop runs at least this often."""
SLOW_S = 5.0
"""A loop that has not run for longer than this makes the verifier not ready."""
STUCK_S = 30.0
"""A loop that has not run for this long is stuck. A forward pass of a large model takes seconds."""


class Heartbeats:
    """When each loop last ran; for any thread. Each loop marks its own beats, so that a hanging loop shows even though
    its thread is alive.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beats: dict[str, float] = {}

    def mark(self, loop: str) -> None:
        """A loop has run."""
        self._beats[loop] = self._clock()

    def end(self, loop: str) -> None:
        """A loop has ended, as requested."""
        self._beats.pop(loop, None)

    def late(self, seconds: float) -> str:
        """Which loop has not run for longer than `seconds`, and for how long; "" if none."""
        now_s = self._clock()
        for loop, at_s in list(self._beats.items()):
            if now_s - at_s > seconds:
                return f"the {loop} loop has not run for {now_s - at_s:.0f} s"
        return ""

    def ages(self) -> dict[str, float]:
        """Seconds since each loop last ran."""
        now_s = self._clock()
        return {loop: now_s - at_s for loop, at_s in list(self._beats.items())}


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
HINT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
SESSIONS = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """Number of values up to each bound, and above the last. total: sum of the values."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class EngineLoad:
    """Statistics of an engine since it began; written by its thread, readable from any.

    rows, sessions: summed over all forward passes. busy_s: seconds in forward passes. failed: forward passes that
    failed. tokens: verified tokens sent in verdicts and streams. restored: evicted caches that were computed again.
    hints_sent: hints sent. batch: sessions per forward pass. verify, queue: seconds of work and of waiting per reply.
    hints: seconds spent on hints in each forward pass that had any. between: seconds between two forward passes while
    work was waiting.
    """

    began_s: float
    forwards: int = 0
    rows: int = 0
    sessions: int = 0
    busy_s: float = 0.0
    failed: int = 0
    tokens: int = 0
    restored: int = 0
    hints_sent: int = 0
    batch: Histogram = field(default_factory=lambda: Histogram(SESSIONS))
    verify: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    queue: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    hints: Histogram = field(default_factory=lambda: Histogram(HINT_SECONDS))
    between: Histogram = field(default_factory=lambda: Histogram(HINT_SECONDS))

    def ran(self, sessions: int, rows: int, seconds: float) -> None:
        """Count a forward pass."""
        self.forwards += 1
        self.sessions += sessions
        self.rows += rows
        self.busy_s += seconds
        self.batch.add(sessions)

    def replied(self, verify_us: int, queue_us: int, tokens: int) -> None:
        """Count a verdict or streamed tokens."""
        self.tokens += tokens
        self.verify.add(verify_us / 1e6)
        self.queue.add(queue_us / 1e6)

    def summary(self, now: float) -> dict[str, float]:
        """Averages for the log: sessions, rows and milliseconds per forward pass, and the idle share."""
        whole = max(now - self.began_s, 1e-9)
        each = max(self.forwards, 1)
        return {
            "forwards": self.forwards,
            "sessions_a_forward": round(self.sessions / each, 2),
            "rows_a_forward": round(self.rows / each, 2),
            "forward_ms": round(self.busy_s / each * 1e3, 3),
            "idle_share": round(max(0.0, 1 - self.busy_s / whole), 3),
            "failed": self.failed,
            "tokens": self.tokens,
        }


ANONYMOUS = "anonymous"
"""Name of clients without a key; with keys required, of clients that are not admitted."""


@dataclass
class ClientUse:
    """Statistics of all connections of one key since the verifier began; without keys, of all clients.

    The socket thread writes messages and bytes each way; sessions open and opened; resumed: opened with part of their
    answer (after a lost link); reconnects: with a known token; refused: refusals by error code. The engine's thread
    writes tokens sent in verdicts and streams; draft tokens judged and accepted; ended: failed sessions by error code.
    """

    name: str = ANONYMOUS
    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    sessions: int = 0
    opened: int = 0
    resumed: int = 0
    reconnects: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def refusals(self) -> Counter[str]:
        """Refusals by error code, before or after a session was open; from any thread."""
        return Counter(self.refused.copy()) + Counter(self.ended.copy())


@dataclass
class SessionUse:
    """Statistics of one session. id: unique. log: names the session and its client in every line.

    The engine's thread writes rounds (replies with tokens), tokens, draft tokens judged and accepted, microseconds of
    work and of waiting, and the error code that ended it, if any. The socket thread writes bytes.
    """

    id: str
    log: EventLog
    client: ClientUse = field(default_factory=ClientUse)
    began_s: float = 0.0
    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_us: int = 0
    queue_us: int = 0
    error: str = ""
    bytes_up: int = 0
    bytes_down: int = 0

    def worked(self, verify_us: int, queue_us: int) -> None:
        """Add time spent on it."""
        self.verify_us += verify_us
        self.queue_us += queue_us

    def replied(self, tokens: int, drafted: int, accepted: int) -> None:
        """Count a verdict or streamed tokens."""
        client = self.client
        self.rounds += 1
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted
        client.tokens += tokens
        client.drafted += drafted
        client.accepted += accepted

    def ended_with(self, code: str) -> None:
        """Record the error that ends it."""
        self.error = code
        self.client.ended[code] += 1

    def totals(self, now: float) -> dict[str, float | str]:
        """Totals for the log at the end. now: of the same clock as began_s."""
        found: dict[str, float | str] = {
            "seconds": round(now - self.began_s, 3),
            "rounds": self.rounds,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "verify_ms": round(self.verify_us / 1e3, 3),
            "queue_ms": round(self.queue_us / 1e3, 3),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }
        return found | ({"error": self.error} if self.error else {})

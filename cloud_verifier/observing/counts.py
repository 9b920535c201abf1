# SPDX-License-Identifier: Apache-2.0
"""What a verifier counts as it works, in plain numbers that are read off on request: whether its loops go
round, what its engine has done, and what each client and session has used.

Each number is written by one thread only, so that counting is an addition: no lock is taken and no text is made.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from cloud_verifier.logs import EventLog

BEAT_S = 1.0
"""A loop that has nothing to do goes round once in this long."""
SLOW_S = 5.0
"""A loop that has not gone round for longer is not ready for more."""
STUCK_S = 30.0
"""One that has not for this long is stuck. A forward of a large model takes seconds."""


class Heartbeats:
    """When each loop last went round; for any threads. Each loop marks its own: health is that loops go round, not that
    their threads are there.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beats: dict[str, float] = {}

    def mark(self, loop: str) -> None:
        """A loop goes round."""
        self._beats[loop] = self._clock()

    def end(self, loop: str) -> None:
        """A loop has ended, as requested."""
        self._beats.pop(loop, None)

    def late(self, seconds: float) -> str:
        """Which loop has not gone round for longer than so, and for how long; "" where all have."""
        now_s = self._clock()
        for loop, at_s in list(self._beats.items()):
            if now_s - at_s > seconds:
                return f"the loop of the {loop} has not gone round for {now_s - at_s:.0f} s"
        return ""

    def ages(self) -> dict[str, float]:
        """Seconds since each loop last went round."""
        now_s = self._clock()
        return {loop: now_s - at_s for loop, at_s in list(self._beats.items())}


SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
HINT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1)
SESSIONS = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How many values fell at or below each bound, and above all of them. total: their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One value more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass
class EngineLoad:
    """Counted since the engine began; written by its thread, read by any.

    rows, sessions: of all forwards together. busy_s: seconds in forwards. failed: forwards that ended in an error.
    tokens: verified ones that verdicts and streams brought. restored: caches that were made anew for a session that had
    given its own back. hints_sent: hints that left. batch: sessions that shared a forward; verify, queue: seconds of
    work and of waiting behind each reply; hints: seconds that making hints took of each forward with any; between:
    seconds from the end of a forward to the start of the next, where work was waiting.
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
        """One forward more."""
        self.forwards += 1
        self.sessions += sessions
        self.rows += rows
        self.busy_s += seconds
        self.batch.add(sessions)

    def replied(self, verify_us: int, queue_us: int, tokens: int) -> None:
        """One verdict, or tokens of a stream, more."""
        self.tokens += tokens
        self.verify.add(verify_us / 1e6)
        self.queue.add(queue_us / 1e6)

    def summary(self, now: float) -> dict[str, float]:
        """For people: sessions and rows a forward on average, milliseconds a forward, share of the time idle."""
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
"""Who comes without a key; where there are keys, a client that is not let in."""


@dataclass
class ClientUse:
    """Of all connections of one key since the verifier began; without keys of every client.

    Written by the thread of the sockets: messages and bytes each way; sessions that are open, that were opened, and of
    these how many brought the beginning of their answer along (after a lost link); reconnects: how often it came again
    with its token; refused: how often what, by the code of the error. By the engine's thread: tokens that verdicts and
    streams brought, draft tokens judged and accepted; ended: sessions that ended in an error, by its code.
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
        """How often what was refused, before or after a session was open; from any thread."""
        return Counter(self.refused.copy()) + Counter(self.ended.copy())


@dataclass
class SessionUse:
    """One session. id: no other has it. log: says in each line which session, and whose, it is about.

    Written by the engine's thread: rounds (replies with tokens), tokens, draft tokens judged and accepted, microseconds
    of work and of waiting, and the code of the error that it ended with, if any. By the thread of the sockets: bytes.
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
        """Something was done for it."""
        self.verify_us += verify_us
        self.queue_us += queue_us

    def replied(self, tokens: int, drafted: int, accepted: int) -> None:
        """One verdict, or tokens of a stream, more."""
        client = self.client
        self.rounds += 1
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted
        client.tokens += tokens
        client.drafted += drafted
        client.accepted += accepted

    def ended_with(self, code: str) -> None:
        """It ends in an error."""
        self.error = code
        self.client.ended[code] += 1

    def totals(self, now: float) -> dict[str, float | str]:
        """For the log, when it is over; now: of the clock that began_s is of."""
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

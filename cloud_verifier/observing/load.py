"""What the engine has done so far, in numbers: forwards, rows, sessions that shared them, times, tokens."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

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

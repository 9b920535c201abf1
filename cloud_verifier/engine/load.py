"""What the engine has done so far, in numbers: forwards, rows, sessions that shared them, and time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EngineLoad:
    """Counted since the engine began.

    rows, sessions: of all forwards together. busy_s: seconds in forwards. failed: forwards that ended in an error.
    """

    began_s: float
    forwards: int = 0
    rows: int = 0
    sessions: int = 0
    busy_s: float = 0.0
    failed: int = 0

    def ran(self, sessions: int, rows: int, seconds: float) -> None:
        """One forward more."""
        self.forwards += 1
        self.sessions += sessions
        self.rows += rows
        self.busy_s += seconds

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
        }

"""When a recorded moment is due: the bag's time, run at a rate, on a steady clock. Free of ROS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """A pass over a bag: at `began` (s, steady clock) its first moment `first_ns` was due."""

    first_ns: int
    began: float
    rate: float = 1.0

    def due(self, time_ns: int) -> float:
        """When a recorded moment is due, s. One before the first is due at once."""
        return self.began + max(0, time_ns - self.first_ns) * 1e-9 / self.rate

    def bag_time_ns(self, now: float) -> int:
        """The recorded moment that is now."""
        return self.first_ns + int(max(0.0, now - self.began) * self.rate * 1e9)

# SPDX-License-Identifier: Apache-2.0
"""When a recorded moment is due: the bag's time, run at a rate, on a steady clock. Free of ROS."""

from __future__ import annotations

from dataclasses import dataclass, field

from specnav.bags.timeline import BagTimeline


@dataclass(frozen=True)
class PlaybackPace:
    """A pass over a bag: at `began` (s, steady clock) its first moment `first_ns` was due.

    timeline: which of the bag's pauses are shortened.
    """

    first_ns: int
    began: float
    rate: float = 1.0
    timeline: BagTimeline = field(default_factory=BagTimeline)

    def due(self, time_ns: int) -> float:
        """When a recorded moment is due, s. One before the first is due at once."""
        return self.began + max(0, self._since_first(time_ns)) * 1e-9 / self.rate

    def bag_time_ns(self, now: float) -> int:
        """The recorded moment that is now."""
        played_ns = int(max(0.0, now - self.began) * self.rate * 1e9)
        return self.timeline.recorded(self.timeline.played(self.first_ns) + played_ns)

    def _since_first(self, time_ns: int) -> int:
        return self.timeline.played(time_ns) - self.timeline.played(self.first_ns)

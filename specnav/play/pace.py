# SPDX-License-Identifier: Apache-2.0
"""Maps recorded times to times on a steady clock, at a rate. No ROS here."""

from __future__ import annotations

from dataclasses import dataclass, field

from specnav.bags.timeline import BagTimeline


@dataclass(frozen=True)
class PlaybackPace:
    """A pass over a bag that began at `began` (s, steady clock) with the recorded time `first_ns`.

    timeline: which pauses of the bag are shortened.
    """

    first_ns: int
    began: float
    rate: float = 1.0
    timeline: BagTimeline = field(default_factory=BagTimeline)

    def due(self, time_ns: int) -> float:
        """When a recorded time is due, s. Times before the first are due at once."""
        return self.began + max(0, self._since_first(time_ns)) * 1e-9 / self.rate

    def bag_time_ns(self, now: float) -> int:
        """The recorded time that corresponds to `now`."""
        played_ns = int(max(0.0, now - self.began) * self.rate * 1e9)
        return self.timeline.recorded(self.timeline.played(self.first_ns) + played_ns)

    def _since_first(self, time_ns: int) -> int:
        return self.timeline.played(time_ns) - self.timeline.played(self.first_ns)

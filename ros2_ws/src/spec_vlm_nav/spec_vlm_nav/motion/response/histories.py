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
Histories of commanded velocities and measured poses, summed over any interval.

Movements are in the robot's frame: metres along its heading (forward positive), metres aside (left
positive), radians turned (left positive). Times are receive times on a steady clock, s.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
import math

from spec_vlm_nav.common.geometry import Pose, Velocity, wrap, ZERO

KEPT_S = 8.0


@dataclass(frozen=True)
class Travel:
    """A movement: metres along the heading, metres aside (left positive), radians turned."""

    along_m: float = 0.0
    aside_m: float = 0.0
    turned_rad: float = 0.0

    def __add__(self, other: Travel) -> Travel:
        return Travel(
            self.along_m + other.along_m,
            self.aside_m + other.aside_m,
            self.turned_rad + other.turned_rad,
        )

    def __sub__(self, other: Travel) -> Travel:
        return Travel(
            self.along_m - other.along_m,
            self.aside_m - other.aside_m,
            self.turned_rad - other.turned_rad,
        )

    def scaled(self, factor: float) -> Travel:
        """Return the movement times a factor."""
        return Travel(self.along_m * factor, self.aside_m * factor, self.turned_rad * factor)

    @property
    def distance_m(self) -> float:
        """Straight distance, whatever its direction."""
        return math.hypot(self.along_m, self.aside_m)


NOWHERE = Travel()


class _Timeline:
    """Running sums with their times; of entries older than `KEPT_S` only the last is kept."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.totals: list[Travel] = []

    def append(self, now: float, total: Travel) -> int:
        """Append a sum; returns how many of the oldest entries were dropped."""
        self.times.append(now)
        self.totals.append(total)
        if self.times[0] >= now - 2 * KEPT_S:
            return 0
        stale = self.find(now - KEPT_S)
        del self.times[:stale], self.totals[:stale]
        return stale

    def find(self, moment: float) -> int:
        """Return the index of the last entry at or before a time; 0 for earlier times."""
        return max(0, bisect_right(self.times, moment) - 1)


class CommandHistory:
    """Sent velocities; each holds until the next one."""

    def __init__(self) -> None:
        self._line = _Timeline()
        self._velocities: list[Velocity] = []  # each holds from the time at its index
        self.last_at = -math.inf  # when a velocity was last sent
        self.moved_at = -math.inf  # when a nonzero velocity was last in force

    def add(self, velocity: Velocity, now: float) -> None:
        """Record a velocity sent now."""
        last = self._velocities[-1] if self._velocities else None
        self.last_at = now
        if velocity != ZERO or (last is not None and last != ZERO):
            self.moved_at = now
        if velocity == last:
            return
        along, turned = self._sums(now)
        forgotten = self._line.append(now, Travel(along, 0.0, turned))
        self._velocities.append(velocity)
        del self._velocities[:forgotten]

    def since_moving_s(self, now: float) -> float:
        """Return how long the commanded velocity has been zero, s."""
        # The last velocity holds until the next one, also if the node hangs in between.
        goes_on = bool(self._velocities) and self._velocities[-1] != ZERO
        return 0.0 if goes_on else now - self.moved_at

    def between(self, begin: float, end: float) -> Travel:
        """Return the movement commanded between two times."""
        along, turned = self._sums(end)
        along_before, turned_before = self._sums(begin)
        return Travel(along - along_before, 0.0, turned - turned_before)

    def _sums(self, moment: float) -> tuple[float, float]:
        """Return metres along and radians turned up to a time; called many times per tick."""
        if not self._velocities:
            return 0.0, 0.0
        line, velocities = self._line, self._velocities
        place = line.find(moment)
        held = max(0.0, moment - line.times[place])
        before, velocity = line.totals[place], velocities[place]
        return before.along_m + velocity.linear * held, before.turned_rad + velocity.angular * held


class MeasuredHistory:
    """Movement measured by odometry, summed from pose to pose."""

    def __init__(self) -> None:
        self._line = _Timeline()
        self._pose: Pose | None = None
        self.total = NOWHERE  # sum of everything so far

    def add(self, pose: Pose, now: float) -> None:
        """Add a valid pose received now."""
        if self._pose is not None:
            last = self._pose
            turned = wrap(pose.yaw - last.yaw)
            heading = last.yaw + turned / 2
            dx, dy = pose.x - last.x, pose.y - last.y
            cos, sin = math.cos(heading), math.sin(heading)
            self.total += Travel(dx * cos + dy * sin, dy * cos - dx * sin, turned)
        self._pose = pose
        self._line.append(now, self.total)

    @property
    def last_at(self) -> float:
        """Return when the last pose was received; -inf if there is none."""
        return self._line.times[-1] if self._line.times else -math.inf

    def covers_s(self, now: float) -> float:
        """Return how far back the history reaches, s."""
        return now - self._line.times[0] if self._line.times else 0.0

    def since(self, begin: float) -> Travel:
        """Return the movement from a time to the last pose, interpolating linearly."""
        times, totals = self._line.times, self._line.totals
        if not times:
            return NOWHERE
        place = self._line.find(begin)
        before = totals[place]
        if begin > times[place] and place + 1 < len(times):
            share = (begin - times[place]) / (times[place + 1] - times[place])
            before = before + (totals[place + 1] - before).scaled(share)
        return self.total - before

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
Histories of commanded velocities and measured poses, and their comparison in one time window.

Movements are in the robot's frame: metres along its heading (forward positive), metres aside (left
positive), radians turned (left positive). Times are receive times on a steady clock, s.

The base's response delay is not known exactly. So the expected motion in a window is a range: the
least and the most that any delay up to `response_timeout_s` explains. A measurement outside the
range is a discrepancy.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.common.geometry import Pose, Velocity, wrap, ZERO

KEPT_S = 8.0
DELAY_STEPS = 7
LITTLE = 0.2  # share of the commanded motion; less is no response at all
MARGIN_M, MARGIN_RAD = 0.04, 0.08  # sway and slip of a healthy robot
SLIP_M = 0.15  # a turn on the spot may drift this far within a window
SWERVE_RAD = 0.5  # a straight motion may swerve this much


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
    """Running sums with their times, of at least the last `KEPT_S`."""

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


class DeviationKind(enum.Enum):
    """Kind of discrepancy."""

    NONE = "no response"
    WRONG = "wrong response"
    UNCOMMANDED = "motion without a command"


@dataclass(frozen=True)
class Discrepancy:
    """A difference between commanded and measured motion, with the reason in words."""

    kind: DeviationKind
    reason: str


@dataclass(frozen=True)
class ResponseConfig:
    """
    How a healthy base responds to a command.

    response_timeout_s: the longest delay that is not a fault.
    actuation_delay_s: the usual delay, as calibrated.
    linear_scale, angular_scale: measured over commanded speed, as calibrated.
    response_low, response_high: bounds of measured over expected motion.
    """

    response_watched: bool = True
    response_timeout_s: float = 0.7
    actuation_delay_s: float = 0.0
    linear_scale: float = 1.0
    angular_scale: float = 1.0
    response_low: float = 0.5
    response_high: float = 1.7


@dataclass(frozen=True)
class Range:
    """The least and the most motion to expect."""

    least: float
    most: float

    def widened(self, low: float, high: float, margin: float) -> Range:
        """Return the range scaled by `low` and `high` and widened by a margin."""
        least = self.least * (low if self.least > 0 else high)
        most = self.most * (high if self.most > 0 else low)
        return Range(least - margin, most + margin)


def expected(
    commands: CommandHistory, begin: float, end: float, config: ResponseConfig
) -> tuple[Range, Range]:
    """Return the ranges of metres along and radians turned that any allowed delay explains."""
    moved = []
    for step in range(DELAY_STEPS + 1):
        delay = config.response_timeout_s * step / DELAY_STEPS
        moved.append(commands.between(begin - delay, end - delay))
    along = [m.along_m * config.linear_scale for m in moved]
    turned = [m.turned_rad * config.angular_scale for m in moved]
    return Range(min(along), max(along)), Range(min(turned), max(turned))


def compare(along: Range, turned: Range, seen: Travel, config: ResponseConfig) -> Discrepancy | None:
    """Return the discrepancy of a measured movement from the expected ranges, or None."""
    bounds = along.widened(config.response_low, config.response_high, MARGIN_M)
    if not bounds.least <= seen.along_m <= bounds.most:
        return _wrong_along(along, seen)
    if max(abs(along.least), abs(along.most)) < MARGIN_M and seen.distance_m > SLIP_M:
        return Discrepancy(DeviationKind.WRONG, f"moved {seen.distance_m:.2f} m aside: pushed, or slipping?")
    bounds = turned.widened(config.response_low, config.response_high, MARGIN_RAD)
    # A straight motion is steered a little and may swerve more than that.
    room = 0.0 if max(abs(turned.least), abs(turned.most)) > MARGIN_RAD else SWERVE_RAD
    if not bounds.least - room <= seen.turned_rad <= bounds.most + room:
        return _wrong_turned(turned, seen)
    return None


def _wrong_along(along: Range, seen: Travel) -> Discrepancy:
    told = along.least if abs(along.least) > abs(along.most) else along.most
    due = along.least if told > 0 else along.most  # the part that is due even with the longest delay
    what = f"{seen.along_m:+.2f} m where {told:+.2f} m were commanded"
    if due and abs(seen.along_m) < abs(told):
        if abs(seen.along_m) < LITTLE * abs(due):
            return Discrepancy(DeviationKind.NONE, f"no response: odometry shows {what}")
        if abs(seen.aside_m) > abs(seen.along_m) / 2:
            return Discrepancy(DeviationKind.NONE, f"slides along something: {what}")
    return _wrong("moves", seen.along_m, told, what)


def _wrong_turned(turned: Range, seen: Travel) -> Discrepancy:
    told = turned.least if abs(turned.least) > abs(turned.most) else turned.most
    due = turned.least if told > 0 else turned.most
    degrees = math.degrees(seen.turned_rad)
    what = f"{degrees:+.0f} degrees where {math.degrees(told):+.0f} were commanded"
    if due and abs(seen.turned_rad) < LITTLE * abs(due):
        return Discrepancy(DeviationKind.NONE, f"no response: odometry shows {what}")
    return _wrong("turns", seen.turned_rad, told, what)


def _wrong(does: str, seen: float, told: float, what: str) -> Discrepancy:
    if seen * told < 0:
        reason = f"{does} the wrong way: {what}; mirrored odometry, or pushed?"
    else:
        how = "too far" if abs(seen) > abs(told) else "not far enough"
        reason = f"{does} {how}: {what}; scale of odometry, slipping, pushed?"
    return Discrepancy(DeviationKind.WRONG, reason)

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
Compares commanded with measured motion in one time window.

The base's response delay is not known exactly. So the expected motion in a window is a range: the
least and the most that any delay up to `response_timeout_s` explains. A measurement outside the
range is a discrepancy.
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.motion.response.histories import CommandHistory, Travel

DELAY_STEPS = 7
LITTLE = 0.2  # share of the commanded motion; less is no response at all
MARGIN_M, MARGIN_RAD = 0.04, 0.08  # sway and slip of a healthy robot
SLIP_M = 0.15  # a turn on the spot may drift this far within a window
SWERVE_RAD = 0.5  # a straight motion may swerve this much


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

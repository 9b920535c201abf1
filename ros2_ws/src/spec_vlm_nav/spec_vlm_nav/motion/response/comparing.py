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
Commanded motion against measured motion, in one window of time.

How late the base responds is not known exactly, so what may have been measured in a window lies
between the least and the most that any delay up to `response_timeout_s` explains; what lies
outside is a discrepancy.
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.motion.response.histories import CommandHistory, Travel

DELAY_STEPS = 7
LITTLE = 0.2  # of what was commanded at least: less is not a response at all
MARGIN_M, MARGIN_RAD = 0.04, 0.08  # what sway and slip of a sound robot amount to
SLIP_M = 0.15  # a turn on the spot may wander so far within a window
SWERVE_RAD = 0.5  # a straight motion may swerve so far


class DeviationKind(enum.Enum):
    """What is wrong."""

    NONE = "no response"
    WRONG = "wrong response"
    UNCOMMANDED = "motion without a command"


@dataclass(frozen=True)
class Discrepancy:
    """A difference between what was commanded and what was measured, in words."""

    kind: DeviationKind
    reason: str


@dataclass(frozen=True)
class ResponseConfig:
    """
    What a sound base does of a command.

    `response_timeout_s`: the longest delay that is not a fault; `actuation_delay_s`: the usual one;
    `linear_scale`, `angular_scale`: measured over commanded speed; both as calibrated.
    `response_low` and `response_high` bound measured over expected motion.
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
    """The least and the most that may have been measured."""

    least: float
    most: float

    def widened(self, low: float, high: float, margin: float) -> Range:
        """Return the range with everything between `low` and `high` times it, and a margin."""
        least = self.least * (low if self.least > 0 else high)
        most = self.most * (high if self.most > 0 else low)
        return Range(least - margin, most + margin)


def expected(
    commands: CommandHistory, begin: float, end: float, config: ResponseConfig
) -> tuple[Range, Range]:
    """Return the range of metres along and of radians turned that any allowed delay explains."""
    moved = []
    for step in range(DELAY_STEPS + 1):
        delay = config.response_timeout_s * step / DELAY_STEPS
        moved.append(commands.between(begin - delay, end - delay))
    along = [m.along_m * config.linear_scale for m in moved]
    turned = [m.turned_rad * config.angular_scale for m in moved]
    return Range(min(along), max(along)), Range(min(turned), max(turned))


def compare(
    along: Range, turned: Range, seen: Travel, config: ResponseConfig
) -> Discrepancy | None:
    """Return what is wrong with a measured movement, given what is expected; None: nothing."""
    bounds = along.widened(config.response_low, config.response_high, MARGIN_M)
    if not bounds.least <= seen.along_m <= bounds.most:
        return _wrong_along(along, seen)
    if max(abs(along.least), abs(along.most)) < MARGIN_M and seen.distance_m > SLIP_M:
        return Discrepancy(
            DeviationKind.WRONG, f"moved {seen.distance_m:.2f} m aside: pushed, or slipping?"
        )
    bounds = turned.widened(config.response_low, config.response_high, MARGIN_RAD)
    # A straight motion is steered a little and may swerve more than that.
    room = 0.0 if max(abs(turned.least), abs(turned.most)) > MARGIN_RAD else SWERVE_RAD
    if not bounds.least - room <= seen.turned_rad <= bounds.most + room:
        return _wrong_turned(turned, seen)
    return None


def _wrong_along(along: Range, seen: Travel) -> Discrepancy:
    told = along.least if abs(along.least) > abs(along.most) else along.most
    due = along.least if told > 0 else along.most  # of it, at the latest by now
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

# SPDX-License-Identifier: Apache-2.0
"""Defines steps: a sequence of speeds, and when it ends. Metres, radians, seconds; left and forward are positive."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spec_vlm_nav.common.geometry import ZERO, Velocity
from spec_vlm_nav.motion.response.comparing import Travel

LINEAR_ACCELERATION, ANGULAR_ACCELERATION = 1.0, 3.0  # as motion_node accelerates, m/s2 and rad/s2
STAIR_S, STAIR_FACTOR = 0.6, 1.3  # duration of each speed of a search, and factor to the next
SLOWEST_LINEAR, SLOWEST_ANGULAR = 0.02, 0.04  # first speeds of a search, m/s and rad/s
RESTING_S = 1.5


@dataclass(frozen=True)
class Stretch:
    """A commanded speed and its duration; speeds change by the accelerations above."""

    velocity: Velocity
    seconds: float


@dataclass(frozen=True)
class CalibrationStep:
    """One small motion. `style`: how it is stopped, "": the user's choice. `amount`: metres or radians, signed."""

    words: str
    stretches: tuple[Stretch, ...] = ()
    amount: float = 0.0
    turns: bool = False
    is_search: bool = False
    style: str = ""

    @property
    def sign(self) -> float:
        """1 for forward and left, -1 for right."""
        return math.copysign(1.0, self.amount)

    @property
    def seconds(self) -> float:
        """Duration of all speeds."""
        return sum(stretch.seconds for stretch in self.stretches)

    @property
    def speed(self) -> float:
        """The highest speed, m/s or rad/s."""
        return max((abs(speed_of(s.velocity, self.turns)) for s in self.stretches), default=0.0)

    def velocity(self, after_s: float) -> Velocity:
        """The commanded velocity at this time after the beginning."""
        for stretch in self.stretches:
            if after_s < stretch.seconds:
                return stretch.velocity
            after_s -= stretch.seconds
        return ZERO

    def progress(self, travel: Travel) -> float:
        """The part of a movement that belongs to this step: m or rad, positive in the commanded direction."""
        return self.sign * (travel.turned_rad if self.turns else travel.along_m)


def speed_of(velocity: Velocity, turns: bool) -> float:
    """Its angular or linear speed, rad/s or m/s."""
    return velocity.angular if turns else velocity.linear


def acceleration_of(turns: bool) -> float:
    """The acceleration of that speed, m/s2 or rad/s2."""
    return ANGULAR_ACCELERATION if turns else LINEAR_ACCELERATION


def resting() -> CalibrationStep:
    """Stand still while odometry is received."""
    return CalibrationStep(f"stands for {RESTING_S:g} s", (Stretch(ZERO, RESTING_S),))


def turn(angle: float, rate: float, why: str = "", style: str = "") -> CalibrationStep:
    """Turn by an angle (left positive) at a rate (positive)."""
    side = "left" if angle > 0 else "right"
    words = f"turns {side} {abs(math.degrees(angle)):.0f} degrees at {rate:.2f} rad/s{why}"
    seconds = abs(angle) / rate + rate / (2 * ANGULAR_ACCELERATION)
    speed = Velocity(0.0, math.copysign(rate, angle))
    return CalibrationStep(words, (Stretch(speed, seconds),), angle, turns=True, style=style)


def forward(distance: float, speed: float, style: str = "") -> CalibrationStep:
    """Drive forward by a distance at a speed."""
    words = f"goes forward {distance:.2f} m at {speed:.2f} m/s"
    seconds = distance / speed + speed / (2 * LINEAR_ACCELERATION)
    return CalibrationStep(words, (Stretch(Velocity(speed, 0.0), seconds),), distance, style=style)


def stairs(slowest: float, fastest: float) -> list[float]:
    """The speeds of a search, slowest first; the last is the fastest allowed."""
    speeds = []
    while slowest < fastest:
        speeds.append(slowest)
        slowest *= STAIR_FACTOR
    return [*speeds, fastest]


def search_turn(left: bool, slowest: float, fastest: float) -> CalibrationStep:
    """Turn faster and faster, starting at a rate, until the base moves."""
    sign = 1.0 if left else -1.0
    rates = stairs(slowest, fastest)
    words = f"turns {'left' if left else 'right'} slowly, from {slowest:.2f} rad/s on, until it moves"
    stretches = tuple(Stretch(Velocity(0.0, sign * rate), STAIR_S) for rate in rates)
    return CalibrationStep(words, stretches, sign * sum(rates) * STAIR_S, turns=True, is_search=True)


def search_forward(slowest: float, fastest: float, room_m: float, style: str = "") -> CalibrationStep:
    """Drive forward faster and faster, starting at a speed, until the base moves or room_m was commanded."""
    speeds = stairs(slowest, fastest)
    while len(speeds) > 1 and sum(speeds) * STAIR_S > room_m:
        speeds.pop()
    words = f"goes forward slowly, from {slowest:.2f} m/s on, until it moves"
    stretches = tuple(Stretch(Velocity(speed, 0.0), STAIR_S) for speed in speeds)
    return CalibrationStep(words, stretches, sum(speeds) * STAIR_S, is_search=True, style=style)

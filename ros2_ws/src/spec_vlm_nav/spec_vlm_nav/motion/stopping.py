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
How a robot that takes Twists is told to stand, and when to say nothing more.

Some drivers drop a Twist of zeros, and the base holds the last one for a second. So a stop may
begin with a creep too slow to see (`epsilon`), which such a driver takes, before the zeros that
others want; `brake` slows down first, for a base that must not be stopped on the spot. Once the
robot stands, silence: others may want to drive it, and a multiplexer counts a talking source.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.executor import Velocity, ZERO

STYLES = ('epsilon', 'zero', 'brake')
CREEPS = 2  # ticks: the first message may be overwritten by the second before it is read
QUIET_AFTER_S = 1.5  # longer than a base holds what it was told last


@dataclass(frozen=True)
class StopConfig:
    """`epsilon_mps`: the creep; decelerations of `brake`, m/s2 and rad/s2; `rate_hz` of ticks."""

    style: str = 'epsilon'
    epsilon_mps: float = 0.001
    linear_deceleration: float = 2.0
    angular_deceleration: float = 6.0
    rate_hz: float = 30.0


class TwistStops:
    """Turns the gate's velocities, one a tick, into what is published."""

    def __init__(self, config: StopConfig | None = None) -> None:
        self.config = config or StopConfig()
        self._last = ZERO  # what was published last
        self._creeps = 0
        self._since_motion = 0  # ticks

    @property
    def _quiet_after(self) -> int:
        return round(QUIET_AFTER_S * self.config.rate_hz)

    def velocity(self, velocity: Velocity, standing: bool) -> Velocity | None:
        """Return what to publish in this tick; None: nothing, the robot stands and knows it."""
        if velocity != ZERO:
            self._since_motion, self._creeps = 0, CREEPS
            self._last = velocity
            return velocity
        self._since_motion += 1
        if standing and self._since_motion > self._quiet_after:
            self._last = ZERO
            return None
        return self._slower()

    def stop(self) -> Velocity:
        """Return what to publish now, whatever moves the robot; more follows in the ticks."""
        if self._since_motion > self._quiet_after:
            self._since_motion = 0  # it stood for long: zeros again, nothing to slow down from
        return self._slower()

    def _slower(self) -> Velocity:
        self._last = self._next()
        return self._last

    def _next(self) -> Velocity:
        config = self.config
        if config.style == 'zero':
            return ZERO
        if config.style == 'brake' and (slower := self._braked()) != ZERO:
            return slower
        if self._creeps:
            self._creeps -= 1
            return Velocity(config.epsilon_mps, 0.0)
        return ZERO

    def _braked(self) -> Velocity:
        config, last = self.config, self._last
        return Velocity(
            _towards_zero(last.linear, config.linear_deceleration / config.rate_hz),
            _towards_zero(last.angular, config.angular_deceleration / config.rate_hz),
        )


def _towards_zero(speed: float, step: float) -> float:
    if abs(speed) <= step:
        return 0.0
    return speed - step if speed > 0 else speed + step

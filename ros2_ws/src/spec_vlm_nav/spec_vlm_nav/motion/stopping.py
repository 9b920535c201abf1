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
How stops are sent as Twists, and when sending ends.

Some drivers drop a zero Twist, and the base then holds the last one for a second. So style `epsilon`
first sends one Twist with an imperceptible speed, which these drivers accept, and then zeros for all
others. If odometry shows that the base goes on, both are sent again. `brake` slows down first, for a
base that must not stop abruptly. Once the robot stands, nothing is sent: other programs may want to
drive it, and a multiplexer treats a publishing source as active.
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.common.geometry import Velocity, ZERO
from spec_vlm_nav.motion.limits import slew

STYLES = ("epsilon", "zero", "brake")
QUIET_AFTER_S = 1.5  # longer than a base holds its last Twist
READ_WITHIN_S = 0.02  # gap before the zeros, so that a reader with a queue of one sees the creep


class RestDetector(enum.Enum):
    """What odometry shows while no motion is commanded."""

    UNKNOWN = "slowing down, or nothing is known"
    STANDS = "it stands"
    RESISTS = "it moves although a stop was sent"


@dataclass(frozen=True)
class StopConfig:
    """Stop style; epsilon_mps: the creep speed; decelerations of `brake`, m/s2 and rad/s2."""

    style: str = "epsilon"
    epsilon_mps: float = 0.001
    linear_deceleration: float = 2.0
    angular_deceleration: float = 6.0
    rate_hz: float = 30.0


class TwistStops:
    """Turns the gate's velocities, one per tick, into the Twists to publish; None: none."""

    def __init__(self, config: StopConfig | None = None) -> None:
        self.config = config or StopConfig()
        self._last = ZERO  # published last
        self._creep_due = False  # no creep was sent since the last motion
        self._crept_at = self._quiet_since = -math.inf
        self._stood = False  # the robot has stood since the last stop; later motion is another client's

    def velocity(self, velocity: Velocity, rest: RestDetector, now: float) -> Velocity | None:
        """Return the Twist of this tick, or None; now: seconds of a steady clock."""
        if velocity != ZERO:
            self._quiet_since, self._creep_due, self._last = now, True, velocity
            self._stood = False
            return velocity
        if rest is RestDetector.RESISTS and self._last == ZERO:
            self._creep_due = True
        elif self._stood or (rest is RestDetector.STANDS and now - self._quiet_since > QUIET_AFTER_S):
            self._stood = True
            return None
        if now - self._crept_at < READ_WITHIN_S:
            return None
        return self._next(now)

    def stop(self, now: float) -> Velocity:
        """Return the Twist to publish at once for a stop; the following ticks continue it."""
        self._quiet_since, self._stood = now, False
        return self._next(now)

    def _next(self, now: float) -> Velocity:
        self._last = self._slower(now)
        return self._last

    def _slower(self, now: float) -> Velocity:
        config = self.config
        if config.style == "brake" and (slower := self._braked()) != ZERO:
            return slower
        if self._creep_due and config.style != "zero":
            self._creep_due, self._crept_at = False, now
            return Velocity(config.epsilon_mps, 0.0)
        return ZERO

    def _braked(self) -> Velocity:
        config, last = self.config, self._last
        return Velocity(
            slew(last.linear, 0.0, 0.0, config.linear_deceleration, 1.0 / config.rate_hz),
            slew(last.angular, 0.0, 0.0, config.angular_deceleration, 1.0 / config.rate_hz),
        )

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

"""The limits of the gate: speeds, accelerations, timeouts, lengths."""

from __future__ import annotations

from dataclasses import dataclass
import math

from spec_vlm_nav.common.geometry import Velocity
from spec_vlm_nav.common.parameters import fixed
from spec_vlm_nav.motion.ahead.collision import AheadConfig
from spec_vlm_nav.motion.rear import RearConfig
from spec_vlm_nav.motion.response.comparing import ResponseConfig
from spec_vlm_nav.motion.watchdogs import WatchdogConfig


@dataclass(frozen=True)
class SafetyConfig(WatchdogConfig, AheadConfig, RearConfig, ResponseConfig):
    """
    Limits and timeouts; SI units.

    `unanswered_max_*`: until odometry shows the start of a motion. `geofence_m` 0: no fence.
    """

    max_linear: float = 0.5
    max_angular: float = 0.8
    unverified_max_linear: float = 0.15
    unverified_max_angular: float = 0.4
    unanswered_max_linear: float = 0.2
    unanswered_max_angular: float = 0.4
    linear_acceleration: float = 1.0
    angular_acceleration: float = 3.0
    linear_deceleration: float = 2.0
    angular_deceleration: float = 6.0
    max_distance: float = fixed(1.0)  # longest drive of one command
    max_angle: float = fixed(math.radians(90))
    max_command_s: float = 8.0  # a command's deadline is never later than this
    max_frame_age_s: float = 20.0  # a command decided from an older frame never moves the robot
    geofence_m: float = 0.0  # 0: no fence
    dry_run: bool = False

    def fastest(self, unverified: bool, unanswered: bool = False) -> Velocity:
        """Return the limits of both speeds, as positive numbers."""
        linear, angular = self.max_linear, self.max_angular
        if unverified:
            linear = min(linear, self.unverified_max_linear)
            angular = min(angular, self.unverified_max_angular)
        if unanswered and self.response_watched:
            linear = min(linear, self.unanswered_max_linear)
            angular = min(angular, self.unanswered_max_angular)
        return Velocity(linear, angular)


def slew(current: float, wanted: float, up: float, down: float, dt: float) -> float:
    """
    Return the value nearest to `wanted` that may follow `current` after `dt` seconds.

    `up` limits the change away from zero, `down` the change towards it; a change of sign goes
    through zero.
    """
    if wanted * current < 0:
        wanted = 0.0
    limit = (up if abs(wanted) > abs(current) else down) * dt
    return current + max(-limit, min(limit, wanted - current))

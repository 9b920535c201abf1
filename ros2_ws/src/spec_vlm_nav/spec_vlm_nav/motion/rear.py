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
How far the way straight back is known to be free, from where the robot has just been.

Unless a sensor sees the way behind (`AheadWatch.free_behind_m`), the robot may drive back only over
places that its middle passed a short while ago, and only while odometry is proven; anything else
would be driving blind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

from spec_vlm_nav.common.geometry import Pose

SPACING_M = 0.02
STEP_M = 0.02
BESIDE_M = 0.06  # a point within this distance of a visited place counts as visited
KEPT = 600


@dataclass(frozen=True)
class RearConfig:
    """How long a place counts as free after the robot left it, and the longest way back."""

    rear_known_s: float = 20.0
    rear_max_m: float = 0.5


@dataclass(frozen=True)
class _Place:
    x: float
    y: float
    left_at: float


class RearWatch:
    """The places that the robot has visited, by odometry."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque(maxlen=KEPT)
        self._pose: Pose | None = None

    def hear(self, pose: Pose, now: float) -> None:
        """Record a valid pose."""
        self._pose = pose
        here = _Place(pose.x, pose.y, now)
        if self._places and _apart(self._places[-1], pose.x, pose.y) < SPACING_M:
            self._places[-1] = _Place(self._places[-1].x, self._places[-1].y, now)
            return
        self._places.append(here)

    def forget(self) -> None:
        """Forget all places: odometry jumped, or the robot was moved."""
        self._places.clear()

    def free_m(self, now: float, config: RearConfig) -> float:
        """Return how far straight back the way is known to be free, m."""
        pose = self._pose
        if pose is None:
            return 0.0
        known = [p for p in self._places if now - p.left_at <= config.rear_known_s]
        free = 0.0
        while free + STEP_M <= config.rear_max_m + 1e-9:
            back = free + STEP_M
            x, y = pose.x - back * math.cos(pose.yaw), pose.y - back * math.sin(pose.yaw)
            if not any(_apart(p, x, y) <= BESIDE_M for p in known):
                break
            free = back
        # The last free point may lie up to BESIDE_M beyond the place the robot has visited.
        return max(0.0, round(free - BESIDE_M, 6))


def _apart(place: _Place, x: float, y: float) -> float:
    return math.hypot(place.x - x, place.y - y)

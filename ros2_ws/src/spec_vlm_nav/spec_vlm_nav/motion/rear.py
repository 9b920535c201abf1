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
How far straight back the way is known to be free: where the robot itself has just been.

Nothing of the robot looks behind it. It may go back only over places that its middle passed a
short while ago, and only as long as odometry is sound; anything else is driving blind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

from spec_vlm_nav.common.geometry import Pose

SPACING_M = 0.02
STEP_M = 0.02
BESIDE_M = 0.06  # so far beside a place where it has been is still that place
KEPT = 600


@dataclass(frozen=True)
class RearConfig:
    """How long a place counts as free after the robot has left it, and how far it may go back."""

    rear_known_s: float = 20.0
    rear_max_m: float = 0.5


@dataclass(frozen=True)
class _Place:
    x: float
    y: float
    left_at: float


class RearWatch:
    """The way that was driven, as odometry reports it."""

    def __init__(self) -> None:
        self._places: deque[_Place] = deque(maxlen=KEPT)
        self._pose: Pose | None = None

    def hear(self, pose: Pose, now: float) -> None:
        """Take note of a sound pose."""
        self._pose = pose
        here = _Place(pose.x, pose.y, now)
        if self._places and _apart(self._places[-1], pose.x, pose.y) < SPACING_M:
            self._places[-1] = _Place(self._places[-1].x, self._places[-1].y, now)
            return
        self._places.append(here)

    def forget(self) -> None:
        """Nothing is known any more: odometry jumped, or the robot was moved."""
        self._places.clear()

    def free_m(self, now: float, config: RearConfig) -> float:
        """Return how far straight back it is known to be free, m."""
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
        # The last step is still beside a place; the robot has not been further back than that.
        return max(0.0, round(free - BESIDE_M, 6))


def _apart(place: _Place, x: float, y: float) -> float:
    return math.hypot(place.x - x, place.y - y)

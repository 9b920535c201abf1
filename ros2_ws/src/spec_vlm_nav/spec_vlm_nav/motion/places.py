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

"""Where the robot may drive, by odometry: within the geofence, and back over places it has just left."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

from spec_vlm_nav.common.geometry import Motion, Pose

SPACING_M = 0.02
STEP_M = 0.02
BESIDE_M = 0.06  # a point within this distance of a visited place counts as visited
KEPT = 600


class Geofence:
    """
    A circle around the place where an instruction began; no motion may leave it.

    It holds the centre; `radius_m` 0 means no fence.
    """

    def __init__(self) -> None:
        self.middle: Pose | None = None

    def begin(self, pose: Pose | None) -> None:
        """Centre the circle on a pose; None: on the next pose received."""
        self.middle = pose

    def hear(self, pose: Pose) -> None:
        """Use a valid pose as the centre if none is set."""
        if self.middle is None:
            self.middle = pose

    def distance_m(self, pose: Pose) -> float:
        """Return the distance of a pose from the centre, m."""
        return 0.0 if self.middle is None else pose.distance(self.middle)

    def objection(self, pose: Pose, motion: Motion, radius_m: float) -> str:
        """Return why a motion would leave the circle, or lead further out of it; else ""."""
        if not radius_m or self.middle is None or not motion.distance_m:
            return ""
        ahead = motion.distance_m
        end = Pose(pose.x + ahead * math.cos(pose.yaw), pose.y + ahead * math.sin(pose.yaw), pose.yaw)
        away = self.distance_m(end)
        if away <= radius_m or away <= self.distance_m(pose):
            return ""
        return f"leads {away:.2f} m from where the instruction began; the geofence is {radius_m:g} m"


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
    """
    The places that the robot has visited.

    No sensor looks behind it. It may drive back only over places that its middle passed a short
    while ago, and only while odometry is valid; anything else would be driving blind.
    """

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

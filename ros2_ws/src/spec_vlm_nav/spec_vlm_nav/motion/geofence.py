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

"""The geofence: a circle around the place where an instruction began; no motion may leave it."""

from __future__ import annotations

import math

from spec_vlm_nav.common.geometry import Motion, Pose


class Geofence:
    """Holds the circle's centre; `radius_m` 0 means no fence."""

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

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
Where the robot has been, in the odometry frame; metres, radians.

Free of ROS.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
import math

from spec_vlm_nav.common.geometry import Pose

JUMP_M = 1.0  # between two messages: odometry was reset, a new path begins


class Trail:
    """The path so far, thinned: a place every `spacing_m`, the newest `length` of them."""

    def __init__(self, spacing_m: float, length: int) -> None:
        self._spacing_m = spacing_m
        self._stops: deque[Pose] = deque(maxlen=length)
        self._last: Pose | None = None

    def add(self, pose: Pose) -> bool:
        """Take note of a pose; says whether the path has changed."""
        if not pose.is_finite:
            return False
        if self._last is not None and _between(self._last, pose) > JUMP_M:
            self._stops.clear()
        self._last = pose
        if self._stops and _between(self._stops[-1], pose) < self._spacing_m:
            return False
        self._stops.append(pose)
        return True

    def __len__(self) -> int:
        return len(self._stops)

    def __iter__(self) -> Iterator[Pose]:
        return iter(self._stops)


def _between(a: Pose, b: Pose) -> float:
    return math.hypot(a.x - b.x, a.y - b.y)

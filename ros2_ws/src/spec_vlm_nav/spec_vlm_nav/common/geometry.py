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

"""Poses, velocities and motions in the plane: metres, radians, seconds."""

from __future__ import annotations

from dataclasses import dataclass
import math


@dataclass(frozen=True)
class Pose:
    """Planar pose: metres, metres, radians."""

    x: float
    y: float
    yaw: float

    @property
    def is_finite(self) -> bool:
        """Whether all three values are finite."""
        return math.isfinite(self.x) and math.isfinite(self.y) and math.isfinite(self.yaw)

    def distance(self, other: Pose) -> float:
        """Return the distance to another pose, metres."""
        return math.hypot(self.x - other.x, self.y - other.y)


@dataclass(frozen=True)
class Velocity:
    """Forward speed, m/s, and yaw rate, rad/s (left positive)."""

    linear: float = 0.0
    angular: float = 0.0


ZERO = Velocity()


@dataclass(frozen=True)
class Motion:
    """
    A straight drive or a turn on the spot: exactly one of the two fields is not zero.

    Metres (forward positive), radians (left positive).
    """

    distance_m: float = 0.0
    angle_rad: float = 0.0


NO_MOTION = Motion()


def wrap(angle: float) -> float:
    """Return the angle in (-pi, pi]."""
    return math.atan2(math.sin(angle), math.cos(angle))

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
The corridor ahead of the robot and the nearest obstacle in it; used by scan, depth and cloud.

The corridor is 2 * `half_width_m` wide and lies straight ahead (x forward, y left, metres). An
obstacle needs at least `min_points` points, so that a speck does not stop the robot. A sensor that
measures nothing in the corridor is blind, and blind never counts as clear. If a part of the
corridor is not measured, forward motion is forbidden and turns are allowed.

Distances follow REP 117: -Inf is too near to measure, +Inf is free space, NaN is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

import numpy as np
import numpy.typing as npt

SEEN_AT_LEAST = 0.1  # share of the rays or pixels into the corridor; fewer measured: blind
NEAREST_M = 0.01  # nearer readings are not measurements; a -Inf reading is placed here
SECTORS = 5  # each part of 1 / SECTORS of the corridor's width must be seen
SECTOR_RAYS = 2  # fewest directions of such a part

Points = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Mounting:
    """
    Position and orientation of a cloud's frame on the robot.

    Metres from the point on the floor below the robot's middle; roll, pitch and yaw in radians, as
    in a URDF's rpy.
    """

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    roll: float = 0.0
    pitch: float = 0.0
    yaw: float = 0.0

    @property
    def rotation(self) -> npt.NDArray[np.float64]:
        """Return the rotation matrix, shape (3, 3), from the sensor's axes to the robot's."""
        sines = [math.sin(angle) for angle in (self.roll, self.pitch, self.yaw)]
        cosines = [math.cos(angle) for angle in (self.roll, self.pitch, self.yaw)]
        (sr, sp, sy), (cr, cp, cy) = sines, cosines
        return np.array(
            [
                [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
                [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
                [-sp, cp * sr, cp * cr],
            ]
        )


@dataclass(frozen=True)
class CloudConfig:
    """
    How a cloud is read.

    Points between `min_z_m` and `max_z_m` above the floor are obstacles. Points inside the box of
    the body (front, rear, side) are the robot itself. Distances count from its front and its rear.
    """

    mounting: Mounting = Mounting()
    min_z_m: float = 0.08
    max_z_m: float = 0.6
    front_m: float = 0.0
    rear_m: float = 0.0
    side_m: float = 0.0


@dataclass(frozen=True)
class CorridorConfig:
    """Size of the corridor, and how messages are read."""

    half_width_m: float = 0.25
    reach_m: float = 0.35  # length of the corridor that the sensor must see
    min_points: int = 3
    scan_yaw_rad: float = 0.0  # yaw of the laser on the robot, left positive
    depth_fov_rad: float = 1.5  # horizontal field of view of the depth image
    depth_band: float = 0.2  # share of its rows that is read, around the middle
    cloud: CloudConfig = CloudConfig()


def blindness(looks_ahead: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_], what: str) -> str:
    """
    Return why a sensor counts as blind in the corridor, or "".

    looks_ahead: which rays lie in the corridor. measured: which rays have a measurement.
    """
    looking = int(np.count_nonzero(looks_ahead))
    if not looking:
        return f"{what} does not look ahead"
    if np.count_nonzero(looks_ahead & measured) < SEEN_AT_LEAST * looking:
        return f"{what} measures nothing ahead"
    return ""


def unseen_part(seen: npt.NDArray[np.floating[Any]], what: str) -> str:
    """
    Return which part of the way ahead a sensor does not see, or "".

    seen: the measured share of each direction, 0 to 1, from right to left.
    """
    width = max(SECTOR_RAYS, seen.size // SECTORS)
    if seen.size < width:
        return ""
    sums = np.concatenate(([0.0], np.cumsum(seen)))
    shares = (sums[width:] - sums[:-width]) / width
    worst = int(np.argmin(shares))
    if shares[worst] >= SEEN_AT_LEAST:
        return ""
    percent = round(100 * (worst + width / 2) / seen.size)
    return f"{what} measures nothing in a part of the way ahead ({percent} % from its right)"


def nearest(x: Points, y: Points, config: CorridorConfig) -> float:
    """
    Return the distance of the nearest obstacle; infinite if there is none.

    It is the distance within which the corridor contains `min_points` points.
    """
    inside = x[np.abs(y) <= config.half_width_m]
    if inside.size < config.min_points:
        return math.inf
    return float(np.partition(inside, config.min_points - 1)[config.min_points - 1])

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
The way that is looked at, and the nearest thing on it: what scan, depth and cloud have in common.

The corridor is as wide as twice `half_width_m` and lies straight ahead (x forward, y left,
metres). A thing counts when enough points agree on it, so that a speck does not stop the robot. A
sensor that measures nothing where it should look is blind, and blind is not clear; where a part of
the way is not measured at all, forward motion is not allowed, and turns are.

Distances follow REP 117: -Inf is a thing too near to measure, +Inf is free space, NaN is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

import numpy as np
import numpy.typing as npt

SEEN_AT_LEAST = 0.1  # of the rays or pixels that look into the corridor; fewer measured: blind
NEAREST_M = 0.01  # nearer things are not measurements, and what is too near is put here at least
SECTORS = 5  # a part of the corridor that must be seen is so much of its width
SECTOR_RAYS = 2  # fewer directions make no part

Points = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Mounting:
    """
    Where a cloud's frame is on the robot, and how it is turned.

    Metres from a point on the floor below the robot's middle; roll, pitch and yaw in radians, as a
    URDF's rpy.
    """

    x: float = 0.0
    y: float = 0.0
    z: float = 0.0
    roll: float = 0.0
    pitch: float = 0.0
    yaw: float = 0.0

    @property
    def rotation(self) -> npt.NDArray[np.float64]:
        """Return the matrix, shape (3, 3), that turns the sensor's axes into the robot's."""
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

    Points between `min_z_m` and `max_z_m` over the floor can be met; those in the box that the
    body fills are the robot itself, and distances count from its front and its rear.
    """

    mounting: Mounting = Mounting()
    min_z_m: float = 0.08
    max_z_m: float = 0.6
    front_m: float = 0.0
    rear_m: float = 0.0
    side_m: float = 0.0


@dataclass(frozen=True)
class CorridorConfig:
    """What is looked at, and how a message is read."""

    half_width_m: float = 0.25
    reach_m: float = 0.35  # as far as this it must be able to see
    min_points: int = 3
    scan_yaw_rad: float = 0.0  # of the laser on the robot, left positive
    depth_fov_rad: float = 1.5  # of the depth image, horizontal
    depth_band: float = 0.2  # middle part of its rows
    cloud: CloudConfig = CloudConfig()


def blindness(
    looks_ahead: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_], what: str
) -> str:
    """Return why a sensor whose rays look there shows nothing of it, or ""."""
    looking = int(np.count_nonzero(looks_ahead))
    if not looking:
        return f"{what} does not look ahead"
    if np.count_nonzero(looks_ahead & measured) < SEEN_AT_LEAST * looking:
        return f"{what} measures nothing ahead"
    return ""


def unseen_part(seen: npt.NDArray[np.floating[Any]], what: str) -> str:
    """
    Return which part of the way ahead a sensor does not see, or "".

    seen: for directions side by side from right to left, how much of each was measured, 0 to 1.
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
    Return the distance of the nearest thing that `min_points` points agree on.

    They agree when that many are as near or nearer.
    """
    inside = x[np.abs(y) <= config.half_width_m]
    if inside.size < config.min_points:
        return math.inf
    return float(np.partition(inside, config.min_points - 1)[config.min_points - 1])

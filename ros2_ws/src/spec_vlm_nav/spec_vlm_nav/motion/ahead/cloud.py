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
Obstacles ahead in a point cloud (see sensor_msgs/PointCloud2).

Points are transformed into the robot's frame: x forward, y left, z up, metres, with the origin on
the floor below the robot's middle. Points of the robot's own body, of the floor, and above the
robot's height are removed; the rest are obstacles. A message that cannot be read or shows nothing
ahead counts as blind, with the reason.

Infinite coordinates follow REP 117: a ray that is too near to measure and a free ray have opposite
signs. Points of all zeros (Livox) and NaN were not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import (
    CloudConfig,
    CorridorConfig,
    nearest,
    NEAREST_M,
    unseen_part,
)
from spec_vlm_nav.motion.ahead.unmeasured import Unmeasured, unmeasured_rays

AXES = ("x", "y", "z")
KINDS = {7: "f4", 8: "f8"}  # datatypes of PointField
FARTHEST_M = 1000.0
BEARINGS = 10  # adjacent sectors ahead, each of which must contain a point
SEEN_POINTS = 10  # fewest points ahead below the robot's height; with fewer the cloud is blind
UNDER_FLOOR_M = 0.25  # points this far below the floor mean a stair, or a wrong mounting
UNDER_FLOOR_SHARE = 0.5
# Frames that do not turn with the robot: the configured mounting does not apply to them.
FIXED_FRAMES = ("odom", "map", "world")

Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Field:
    """One field of a point (see sensor_msgs/PointField); `offset` in bytes."""

    name: str
    offset: int
    datatype: int
    count: int = 1


@dataclass(frozen=True)
class PointCloud:
    """A point cloud; steps are bytes from point to point and from row to row."""

    fields: tuple[Field, ...]
    width: int
    height: int
    point_step: int
    row_step: int
    data: bytes
    big_endian: bool = False
    frame: str = ""


def clearance_of_cloud(cloud: PointCloud, config: CorridorConfig) -> Clearance:
    """Return the clearance that a cloud shows."""
    if cloud.frame.rsplit("/", 1)[-1] in FIXED_FRAMES:
        return Clearance(
            blind=f"cloud is in the frame {cloud.frame}, which does not turn with the robot: "
            "a frame fixed to the robot is needed"
        )
    if reason := _unreadable(cloud):
        return Clearance(blind=f"cloud {reason}")
    limits, all_points = config.cloud, _points(cloud)
    rays = unmeasured_rays(all_points, (cloud.height, cloud.width), limits.mounting.rotation)
    with np.errstate(all="ignore"):  # NaN, or beyond the range of float32
        x, y, z = _on_robot(_measured(all_points), limits)
    ahead = x - limits.front_m
    before = (ahead > 0) & (np.abs(y) <= config.half_width_m + ahead) & (z <= limits.max_z_m)
    seen = int(np.count_nonzero(before)) + rays.free_ahead
    if rays.near_ahead >= config.min_points:
        return Clearance(0.0)
    if seen < max(SEEN_POINTS, config.min_points):
        return Clearance(blind=f"cloud shows nothing ahead ({seen} points)")
    if np.count_nonzero(z[before] < -UNDER_FLOOR_M) > UNDER_FLOOR_SHARE * seen:
        return Clearance(
            blind=f"most of the cloud ahead is {UNDER_FLOOR_M:g} m and more under the floor: "
            "a way down, or collision_cloud_z_m and the angles beside it are wrong"
        )
    met = (z >= limits.min_z_m) & (z <= limits.max_z_m)
    on_way = met & (ahead > 0)
    is_near_behind = rays.near_behind >= config.min_points
    return Clearance(
        nearest(ahead[on_way], y[on_way], config),
        behind_m=0.0 if is_near_behind else _behind(x, y, z, met, config),
        unseen=_unseen(ahead[before], y[before], rays, config),
    )


def _unseen(ahead: Numbers, y: Numbers, rays: Unmeasured, config: CorridorConfig) -> str:
    """Return which part of the way ahead contains no point, not even floor, or ""."""
    edge = math.pi / 4
    # Bearings are taken from half_width_m behind the front: the 90 degree fan then covers the corridor.
    bearings = np.concatenate([np.arctan2(y, ahead + config.half_width_m), rays.free_bearings])
    counts, _ = np.histogram(bearings, BEARINGS, (-edge, edge))
    return unseen_part((counts > 0).astype(float), "cloud")


def _unreadable(cloud: PointCloud) -> str:
    """Return why the bytes are not points, or ""."""
    for axis in AXES:
        fields = [field for field in cloud.fields if field.name == axis]
        if len(fields) != 1:
            return f"has {len(fields)} fields {axis}"
        field = fields[0]
        if field.datatype not in KINDS:
            return f"has {axis} of datatype {field.datatype}: float32 (7) or float64 (8) is needed"
        size = np.dtype(KINDS[field.datatype]).itemsize
        if field.count > 1 or not 0 <= field.offset <= cloud.point_step - size:
            return f"has {axis} outside its points of {cloud.point_step} bytes"
    if cloud.width < 1 or cloud.height < 1:
        return "is empty"
    row = cloud.width * cloud.point_step
    # row_step is not needed for a single row; some drivers leave it 0.
    if cloud.height > 1 and cloud.row_step < row:
        return f"has {cloud.width} points in rows of {cloud.row_step} bytes"
    if len(cloud.data) < cloud.row_step * (cloud.height - 1) + row:
        return "is cut short"
    return ""


def _points(cloud: PointCloud) -> tuple[Numbers, Numbers, Numbers]:
    """Return x, y and z, each of shape (N,), of all points of a readable cloud, row by row."""
    order = ">" if cloud.big_endian else "<"
    fields = {field.name: field for field in cloud.fields}
    with np.errstate(all="ignore"):  # float32 does not hold every float64
        x, y, z = (
            np.ndarray(
                (cloud.height, cloud.width),
                np.dtype(order + KINDS[fields[axis].datatype]),
                cloud.data,
                fields[axis].offset,
                (cloud.row_step if cloud.height > 1 else 0, cloud.point_step),
            )
            .astype(np.float32)  # resolves 0.1 mm at 1000 m
            .ravel()
            for axis in AXES
        )
    return x, y, z


def _measured(points: tuple[Numbers, Numbers, Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """
    Return the points that were measured: finite, not all zeros, nearer than FARTHEST_M.

    The message's `is_dense` is not relied on.
    """
    x, y, z = points
    # Comparisons with NaN are false.
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(z))
    measured = (size > NEAREST_M) & (size < FARTHEST_M)
    return (x, y, z) if measured.all() else (x[measured], y[measured], z[measured])


def _on_robot(
    points: tuple[Numbers, Numbers, Numbers], limits: CloudConfig
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the points in the robot's frame, without those inside its own body."""
    x, y, z = points
    mounting = limits.mounting
    place = np.array((mounting.x, mounting.y, mounting.z), np.float32)
    # Written out: a matrix product would start the thread pool of the BLAS library.
    ahead, left, up = (
        row[0] * x + row[1] * y + row[2] * z + start
        for row, start in zip(mounting.rotation.astype(np.float32), place, strict=True)
    )
    own = (ahead <= limits.front_m) & (ahead >= -limits.rear_m) & (np.abs(left) <= limits.side_m)
    return (ahead[~own], left[~own], up[~own]) if own.any() else (ahead, left, up)


def _behind(x: Numbers, y: Numbers, z: Numbers, met: npt.NDArray[np.bool_], config: CorridorConfig) -> float:
    """
    Return how far back the way is seen to be free, m; 0 if it is not seen.

    The body hides the floor right behind it from a sensor at the front. So only a stretch where
    floor was seen counts as free.
    """
    back = -x - config.cloud.rear_m
    way = (back > 0) & (np.abs(y) <= config.half_width_m)
    floor = back[way & (np.abs(z) < config.cloud.min_z_m)]
    if np.count_nonzero(floor < config.reach_m) < config.min_points:
        return 0.0
    thing = nearest(back[way & met], y[way & met], config)
    return min(thing, float(floor.max())) if math.isfinite(thing) else float(floor.max())

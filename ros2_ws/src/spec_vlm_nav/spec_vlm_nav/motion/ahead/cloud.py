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
What a cloud of points shows of the way ahead (see sensor_msgs/PointCloud2).

The points are turned from the sensor's frame into the robot's: x forward, y left, z up, metres,
from a point on the floor below the robot's middle. What is left of them when the robot's own body,
the floor and what passes over the robot are taken away is met on the way. A message is read as it
is, whatever its sender: what cannot be read, or shows nothing ahead, is blind, with the reason.

Infinite coordinates are read as REP 117 has distances: along a ray that is too near they are the
opposite of those along one that is free. All zeros (Livox) and NaN were not measured.
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
BEARINGS = 10  # directions ahead, side by side, in which something must be seen
SEEN_POINTS = 10  # ahead, below what passes over the robot; with fewer it sees nothing there
UNDER_FLOOR_M = 0.25  # so far below the floor nothing is but a stair, or the mounting is wrong
UNDER_FLOOR_SHARE = 0.5
# Frames that stand still while the robot turns: the mounting on the robot says nothing of them.
FIXED_FRAMES = ("odom", "map", "world")

Numbers = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Field:
    """One of a point's numbers (see sensor_msgs/PointField); `offset` in bytes."""

    name: str
    offset: int
    datatype: int
    count: int = 1


@dataclass(frozen=True)
class PointCloud:
    """A cloud of points; steps are bytes from point to point, and from row to row."""

    fields: tuple[Field, ...]
    width: int
    height: int
    point_step: int
    row_step: int
    data: bytes
    big_endian: bool = False
    frame: str = ""


def clearance_of_cloud(cloud: PointCloud, config: CorridorConfig) -> Clearance:
    """Return what a cloud shows."""
    if cloud.frame.rsplit("/", 1)[-1] in FIXED_FRAMES:
        return Clearance(
            blind=f"cloud is in the frame {cloud.frame}, which does not turn with the robot: "
            "a frame fixed to the robot is needed"
        )
    if reason := _unreadable(cloud):
        return Clearance(blind=f"cloud {reason}")
    limits, all_points = config.cloud, _points(cloud)
    rays = unmeasured_rays(all_points, (cloud.height, cloud.width), limits.mounting.rotation)
    with np.errstate(all="ignore"):  # what is not a number, or none that float32 holds
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
    """Return which part of the way ahead shows no point at all, not even floor, or ""."""
    edge = math.pi / 4
    # Seen from so far behind the front, the way widens by as much as it is long.
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
    # One row needs no step to the next one: some drivers leave it 0.
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
            .astype(np.float32)  # of 1000 m it keeps a tenth of a millimetre
            .ravel()
            for axis in AXES
        )
    return x, y, z


def _measured(points: tuple[Numbers, Numbers, Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """
    Return the points that were measured.

    Those are numbers, neither all zeros nor far away. (`is_dense` promises as much; who knows.)
    """
    x, y, z = points
    # NaN is not less than anything.
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(z))
    measured = (size > NEAREST_M) & (size < FARTHEST_M)
    return (x, y, z) if measured.all() else (x[measured], y[measured], z[measured])


def _on_robot(
    points: tuple[Numbers, Numbers, Numbers], limits: CloudConfig
) -> tuple[Numbers, Numbers, Numbers]:
    """Return points in the robot's frame, without those of its own body."""
    x, y, z = points
    mounting = limits.mounting
    place = np.array((mounting.x, mounting.y, mounting.z), np.float32)
    # Written out: a matrix product would wake the threads of a library for it.
    ahead, left, up = (
        row[0] * x + row[1] * y + row[2] * z + start
        for row, start in zip(mounting.rotation.astype(np.float32), place, strict=True)
    )
    own = (ahead <= limits.front_m) & (ahead >= -limits.rear_m) & (np.abs(left) <= limits.side_m)
    return (ahead[~own], left[~own], up[~own]) if own.any() else (ahead, left, up)


def _behind(
    x: Numbers, y: Numbers, z: Numbers, met: npt.NDArray[np.bool_], config: CorridorConfig
) -> float:
    """
    Return how far back the way is seen to be free, m; 0 where it is not seen.

    The body hides what is right behind it from a sensor at the front: only floor that was seen
    there, and beyond, is free.
    """
    back = -x - config.cloud.rear_m
    way = (back > 0) & (np.abs(y) <= config.half_width_m)
    floor = back[way & (np.abs(z) < config.cloud.min_z_m)]
    if np.count_nonzero(floor < config.reach_m) < config.min_points:
        return 0.0
    thing = nearest(back[way & met], y[way & met], config)
    return min(thing, float(floor.max())) if math.isfinite(thing) else float(floor.max())

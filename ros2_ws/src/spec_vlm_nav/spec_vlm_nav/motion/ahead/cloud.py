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

Points of all zeros (Livox) and NaN were not measured. Infinite coordinates follow REP 117: the range
is -Inf where a ray is too near to measure and +Inf where it is free, and the point is the range times
the ray's direction. So a point (-Inf, ...) is an obstacle right ahead or free space behind. The
direction of the ray decides between the two; it is fitted from the cloud's columns if each column has
one bearing. If the bearings are unknown and the sensor may look behind, the point counts as near.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import (
    CloudConfig,
    CorridorConfig,
    nearest,
    NEAREST_M,
    Points,
    unseen_part,
)

AXES = ("x", "y", "z")
KINDS = {7: "f4", 8: "f8"}  # datatypes of PointField
FARTHEST_M = 1000.0
BEARINGS = 10  # sectors ahead; of two adjacent ones, at least one must contain a point
SEEN_POINTS = 10  # fewest points ahead below the robot's height; with fewer the cloud is blind
UNDER_FLOOR_M = 0.25  # points this far below the floor mean a stair, or a wrong mounting
UNDER_FLOOR_SHARE = 0.5
# Frames that do not turn with the robot: the configured mounting does not apply to them.
FIXED_FRAMES = ("odom", "map", "world")
FITTED_FROM = 3  # fewest columns for a fit
FITTED_WITHIN_RAD = 0.2  # largest deviation from a linear fit of the columns' bearings


@dataclass(frozen=True)
class Unmeasured:
    """Counts of near and free rays, ahead and behind; bearings of free rays ahead, if known, rad."""

    near_ahead: int = 0
    near_behind: int = 0
    free_ahead: int = 0
    free_bearings: tuple[float, ...] = ()


def unmeasured_rays(
    points: tuple[Points, Points, Points],
    shape: tuple[int, int],
    rotation: npt.NDArray[np.float64],
) -> Unmeasured:
    """
    Classify the infinite points of a cloud as near or free.

    points: x, y and z in the sensor's axes, row by row, each of shape (N,).
    shape: rows and columns.
    rotation: from the sensor's axes to the robot's, shape (3, 3).
    """
    infinite = np.isinf(points[0]) | np.isinf(points[1]) | np.isinf(points[2])
    if not infinite.any():
        return Unmeasured()
    signs = np.array([np.where(np.isinf(p), np.sign(p), 0.0)[infinite] for p in points])
    onward = rotation[0] @ signs  # positive: the point lies before the sensor
    finite = np.isfinite(points[0]) & np.isfinite(points[1]) & np.isfinite(points[2])
    measured = rotation @ np.array([p[finite] for p in points], np.float64)
    columns = np.arange(infinite.size) % shape[1]
    line = _bearings_of_columns(columns[finite], measured, shape[1])
    if line is None:
        # Points behind count only if the sensor has finite measurements there.
        behind = onward < 0
        return Unmeasured(
            near_ahead=int(np.count_nonzero(behind)),
            near_behind=int(np.count_nonzero(onward > 0)) if (measured[0] < 0).any() else 0,
            free_ahead=int(np.count_nonzero(onward > 0)),
        )
    bearings = line[0] * columns[infinite] + line[1]
    cosines = np.cos(bearings)
    near, free = onward * cosines < 0, onward * cosines > 0
    # At right angles to the robot near and free cannot be told apart: count as near.
    near |= (onward == 0) & (signs < 0).any(axis=0)
    ahead = cosines > 0
    wrapped = np.arctan2(np.sin(bearings), cosines)
    return Unmeasured(
        near_ahead=int(np.count_nonzero(near & ahead)),
        near_behind=int(np.count_nonzero(near & ~ahead)),
        free_ahead=int(np.count_nonzero(free & ahead)),
        free_bearings=tuple(wrapped[free & ahead]),
    )


def _bearings_of_columns(
    columns: npt.NDArray[np.int_], measured: Points, width: int
) -> tuple[float, float] | None:
    """Return slope and offset of bearing over column, rad; None if the columns are not bearings."""
    if width < FITTED_FROM or columns.size < FITTED_FROM:
        return None
    bearings = np.arctan2(measured[1], measured[0])
    east = np.bincount(columns, np.cos(bearings), width)
    north = np.bincount(columns, np.sin(bearings), width)
    known = np.flatnonzero(np.hypot(east, north) > 1e-6)
    if known.size < FITTED_FROM:
        return None
    means = np.unwrap(np.arctan2(north[known], east[known]))
    slope, start = np.polyfit(known, means, 1)
    off = bearings - (slope * columns + start)
    if np.max(np.abs(np.arctan2(np.sin(off), np.cos(off)))) > FITTED_WITHIN_RAD:
        return None
    if abs(slope) * width > 2 * math.pi + FITTED_WITHIN_RAD:
        return None
    return float(slope), float(start)


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
            blind=f"cloud is in the frame {one_line(cloud.frame)}, which does not turn with the robot: "
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


def _unseen(ahead: Points, y: Points, rays: Unmeasured, config: CorridorConfig) -> str:
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


def _points(cloud: PointCloud) -> tuple[Points, Points, Points]:
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


def _measured(points: tuple[Points, Points, Points]) -> tuple[Points, Points, Points]:
    """
    Return the points that were measured: finite, not all zeros, nearer than FARTHEST_M.

    The message's `is_dense` is not relied on.
    """
    x, y, z = points
    # Comparisons with NaN are false.
    size = np.maximum(np.maximum(np.abs(x), np.abs(y)), np.abs(z))
    measured = (size > NEAREST_M) & (size < FARTHEST_M)
    return (x, y, z) if measured.all() else (x[measured], y[measured], z[measured])


def _on_robot(points: tuple[Points, Points, Points], limits: CloudConfig) -> tuple[Points, Points, Points]:
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


def _behind(x: Points, y: Points, z: Points, met: npt.NDArray[np.bool_], config: CorridorConfig) -> float:
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

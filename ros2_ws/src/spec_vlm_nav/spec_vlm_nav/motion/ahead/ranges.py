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

"""Obstacles ahead in a laser scan and in a depth image; a scan may also cover the way behind."""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.ahead.corridor import (
    blindness,
    CorridorConfig,
    nearest,
    NEAREST_M,
    Points,
    unseen_part,
)


@dataclass(frozen=True)
class Scan:
    """A laser scan (see sensor_msgs/LaserScan). Ranges in metres, angles in radians, left positive."""

    ranges: npt.NDArray[np.float32]
    angle_min: float
    angle_increment: float
    range_min: float


def clearance_of_scan(scan: Scan, config: CorridorConfig) -> Clearance:
    """
    Return the clearance that a scan shows.

    +Inf is free and -Inf is an obstacle at range_min (REP 117). A positive range below range_min is
    also an obstacle: drivers that ignore the REP report near obstacles this way. NaN, negative
    ranges and 0 (used by many drivers for no return) were not measured.
    """
    ranges = np.array(scan.ranges, dtype=np.float64)
    header = (scan.angle_min, scan.angle_increment, scan.range_min)
    if ranges.ndim != 1 or not ranges.size or not all(math.isfinite(n) for n in header):
        return Clearance(blind="scan without rays")
    if scan.angle_increment == 0 and ranges.size > 1:
        return Clearance(blind="scan without angles")
    ranges[np.isneginf(ranges)] = max(scan.range_min, NEAREST_M)
    angles = scan.angle_min + scan.angle_increment * np.arange(ranges.size) + config.scan_yaw_rad
    forward, sideways = np.cos(angles), np.sin(angles)
    measured = ranges > 0
    looks_ahead = _looks(forward, sideways, config)
    if blind := blindness(looks_ahead, measured, "scan"):
        return Clearance(blind=blind)
    things = measured & np.isfinite(ranges)
    x, y = ranges[things] * forward[things], ranges[things] * sideways[things]
    looks_back = _looks(-forward, sideways, config)
    behind = 0.0
    if not blindness(looks_back, measured, "scan"):
        behind = nearest(-x[x < 0], y[x < 0], config)
    order = np.argsort(sideways[looks_ahead], kind="stable")  # right to left
    unseen = unseen_part(measured[looks_ahead][order].astype(float), "scan")
    return Clearance(nearest(x[x > 0], y[x > 0], config), behind_m=behind, unseen=unseen)


def _looks(forward: Points, sideways: Points, config: CorridorConfig) -> npt.NDArray[np.bool_]:
    """Return which rays lie within the corridor up to its end; forward, sideways: unit directions."""
    inside = np.abs(sideways) * config.reach_m <= config.half_width_m * forward
    return (forward > 0) & inside


@dataclass(frozen=True)
class DepthImage:
    """A depth image (see sensor_msgs/Image); `step` is bytes per row."""

    encoding: str
    width: int
    height: int
    step: int
    data: bytes
    big_endian: bool = False


def clearance_of_depth(image: DepthImage, config: CorridorConfig) -> Clearance:
    """
    Return the clearance that a depth image shows: 16UC1 in millimetres, 32FC1 in metres.

    0 and NaN mean not measured (RealSense, REP 118). -Inf is an obstacle at the camera, +Inf is
    free (Gazebo, REP 117).
    """
    kinds = {"16UC1": ("u2", 0.001), "mono16": ("u2", 0.001), "32FC1": ("f4", 1.0)}
    if image.encoding not in kinds:
        return Clearance(
            blind=f"depth image of encoding '{one_line(image.encoding)}': 16UC1 or 32FC1 is needed"
        )
    code, unit = kinds[image.encoding]
    kind = np.dtype(f"{'>' if image.big_endian else '<'}{code}")
    row = image.width * kind.itemsize
    if image.width < 1 or image.height < 1 or image.step < row:
        return Clearance(blind=f"depth image of {image.width}x{image.height} with rows of {image.step} bytes")
    if len(image.data) < image.step * image.height:
        return Clearance(blind="depth image is cut short")
    rows = np.frombuffer(image.data, np.uint8, image.step * image.height).reshape(image.height, image.step)
    band = max(1, round(image.height * config.depth_band))
    first = (image.height - band) // 2
    last = first + band
    depth = np.ascontiguousarray(rows[first:last, :row]).view(kind).astype(np.float64) * unit
    depth[np.isneginf(depth)] = NEAREST_M
    focal = image.width / 2 / math.tan(config.depth_fov_rad / 2)
    slope = ((image.width - 1) / 2 - np.arange(image.width)) / focal  # y over x, left positive
    looks_ahead = np.broadcast_to(np.abs(slope) * config.reach_m <= config.half_width_m, depth.shape)
    measured = depth > 0
    if blind := blindness(looks_ahead, measured, "depth image"):
        return Clearance(blind=blind)
    columns = looks_ahead[0]
    seen = measured[:, columns].mean(axis=0)[::-1]  # right to left
    near, slopes = measured & np.isfinite(depth), np.broadcast_to(slope, depth.shape)
    return Clearance(
        nearest(depth[near], depth[near] * slopes[near], config),
        unseen=unseen_part(seen, "depth image"),
    )

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

"""Obstacles ahead in a laser scan, and free distance behind if the scan covers it."""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt
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
    """
    A laser scan (see sensor_msgs/LaserScan).

    Ranges in metres, angles in radians, left positive.
    """

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

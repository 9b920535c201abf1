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
Whether something is too near ahead.

A laser scan or a depth image in, the nearest thing in the robot's corridor out.

The corridor is as wide as twice `half_width_m` and lies straight ahead of the sensor (x forward, y
left, metres). A thing counts when enough points agree on it, so that a speck does not stop the
robot. A sensor that measures nothing where it should look is blind, and blind is not clear.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt

SOURCES = ('none', 'scan', 'depth')
SEEN_AT_LEAST = 0.1  # of the rays or pixels that look into the corridor; fewer measured: blind

Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CorridorConfig:
    """What is looked at, and how a message is read."""

    half_width_m: float = 0.25
    reach_m: float = 0.35  # as far as this it must be able to see
    min_points: int = 3
    scan_yaw_rad: float = 0.0  # of the laser on the robot, left positive
    depth_fov_rad: float = 1.5  # of the depth image, horizontal
    depth_band: float = 0.2  # middle part of its rows


@dataclass(frozen=True)
class View:
    """
    What a message shows.

    The distance of the nearest thing ahead (infinite: none), or why it shows nothing; `behind_m`
    is the same straight back, 0 where the sensor does not look there.
    """

    nearest_m: float = math.inf
    blind: str = ''
    behind_m: float = 0.0


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


@dataclass(frozen=True)
class DepthImage:
    """A depth image (see sensor_msgs/Image); `step` is bytes a row."""

    encoding: str
    width: int
    height: int
    step: int
    data: bytes
    big_endian: bool = False


def view_of_scan(scan: Scan, config: CorridorConfig) -> View:
    """
    Return what a scan shows.

    An infinite range is clear; NaN and what is under range_min was not measured.
    """
    ranges = np.asarray(scan.ranges, dtype=np.float64)
    header = (scan.angle_min, scan.angle_increment, scan.range_min)
    if ranges.ndim != 1 or not ranges.size or not all(math.isfinite(n) for n in header):
        return View(blind='scan without rays')
    if scan.angle_increment == 0 and ranges.size > 1:
        return View(blind='scan without angles')
    angles = scan.angle_min + scan.angle_increment * np.arange(ranges.size) + config.scan_yaw_rad
    forward, sideways = np.cos(angles), np.sin(angles)
    measured = (ranges > 0) & (ranges >= scan.range_min)
    looks_ahead = _looks(forward, sideways, config)
    if blind := _blind(looks_ahead, measured, 'scan'):
        return View(blind=blind)
    things = measured & np.isfinite(ranges)
    x, y = ranges[things] * forward[things], ranges[things] * sideways[things]
    looks_back = _looks(-forward, sideways, config)
    behind = 0.0
    if not _blind(looks_back, measured, 'scan'):
        behind = _nearest(-x[x < 0], y[x < 0], config)
    return View(_nearest(x[x > 0], y[x > 0], config), behind_m=behind)


def _looks(forward: Points, sideways: Points, config: CorridorConfig) -> npt.NDArray[np.bool_]:
    """Return which rays end within the corridor, seen to its end: `forward` is its direction."""
    inside = np.abs(sideways) * config.reach_m <= config.half_width_m * forward
    return (forward > 0) & inside


def view_of_depth(image: DepthImage, config: CorridorConfig) -> View:
    """
    Return what a depth image shows: 16UC1 in millimetres, 32FC1 in metres.

    0 and NaN were not measured.
    """
    kinds = {'16UC1': ('u2', 0.001), 'mono16': ('u2', 0.001), '32FC1': ('f4', 1.0)}
    if image.encoding not in kinds:
        return View(blind=f'depth image of encoding {image.encoding!r}: 16UC1 or 32FC1 is needed')
    code, unit = kinds[image.encoding]
    kind = np.dtype(f'{">" if image.big_endian else "<"}{code}')
    row = image.width * kind.itemsize
    if image.width < 1 or image.height < 1 or image.step < row:
        return View(
            blind=f'depth image of {image.width}x{image.height} with rows of {image.step} bytes'
        )
    if len(image.data) < image.step * image.height:
        return View(blind='depth image is cut short')
    rows = np.frombuffer(image.data, np.uint8, image.step * image.height).reshape(
        image.height, image.step
    )
    band = max(1, round(image.height * config.depth_band))
    first = (image.height - band) // 2
    last = first + band
    depth = np.ascontiguousarray(rows[first:last, :row]).view(kind).astype(np.float64) * unit
    focal = image.width / 2 / math.tan(config.depth_fov_rad / 2)
    slope = ((image.width - 1) / 2 - np.arange(image.width)) / focal  # y over x, left positive
    looks_ahead = np.broadcast_to(
        np.abs(slope) * config.reach_m <= config.half_width_m, depth.shape
    )
    measured = depth > 0
    if blind := _blind(looks_ahead, measured, 'depth image'):
        return View(blind=blind)
    near = measured & np.isfinite(depth)
    return View(
        _nearest(depth[near], depth[near] * np.broadcast_to(slope, depth.shape)[near], config)
    )


def _blind(looks_ahead: npt.NDArray[np.bool_], measured: npt.NDArray[np.bool_], what: str) -> str:
    looking = int(np.count_nonzero(looks_ahead))
    if not looking:
        return f'{what} does not look ahead'
    if np.count_nonzero(looks_ahead & measured) < SEEN_AT_LEAST * looking:
        return f'{what} measures nothing ahead'
    return ''


def _nearest(x: Points, y: Points, config: CorridorConfig) -> float:
    """
    Return the distance of the nearest thing that `min_points` points agree on.

    They agree when that many are as near or nearer.
    """
    inside = x[np.abs(y) <= config.half_width_m]
    if inside.size < config.min_points:
        return math.inf
    return float(np.partition(inside, config.min_points - 1)[config.min_points - 1])


@dataclass(frozen=True)
class AheadConfig:
    """When what is ahead ends a forward motion; `collision_watched`: there is a sensor."""

    collision_watched: bool = False
    collision_distance_m: float = 0.35
    collision_timeout_s: float = 0.5


class AheadWatch:
    """What the sensor saw last, and when (receive time, s)."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.heard_at = -math.inf

    def hear(self, view: View, now: float) -> None:
        """Take note of a message."""
        self.view, self.heard_at = view, now

    def blind(self, now: float, config: AheadConfig) -> str:
        """Return why it is not known what is ahead, or ""."""
        if not config.collision_watched:
            return ''
        if self.view is None:
            return 'nothing heard yet of the sensor that looks ahead'
        if (age := now - self.heard_at) > config.collision_timeout_s:
            return f'the sensor that looks ahead is silent for {age:.2f} s'
        return self.view.blind

    def fault(self, now: float, config: AheadConfig) -> str:
        """Return what is too near for going forward, or ""; whether it sees at all: `blind`."""
        if not config.collision_watched:
            return ''
        if self.blind(now, config) or self.view is None:
            return ''
        if self.view.nearest_m < config.collision_distance_m:
            return (
                f'something is {self.view.nearest_m:.2f} m ahead, '
                f'allowed is {config.collision_distance_m:g} m'
            )
        return ''

    def free_behind_m(self, now: float, config: AheadConfig) -> float:
        """Return how far straight back the sensor sees free floor, its distance kept; else 0."""
        if not config.collision_watched or self.view is None or self.blind(now, config):
            return 0.0
        return max(0.0, self.view.behind_m - config.collision_distance_m)

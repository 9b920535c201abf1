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
Rays of a cloud without a finite range: too near to measure, or free up to the sensor's reach.

By REP 117 such a range is -Inf or +Inf, and the point is the range times the ray's direction. So a
point (-Inf, ...) is an obstacle right ahead or free space behind. The direction of the ray decides
between the two; it is fitted from the cloud's columns if each column has one bearing. If the
bearings are unknown and the sensor may look behind, the point counts as near.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any

import numpy as np
import numpy.typing as npt

FITTED_FROM = 3  # fewest columns for a fit
FITTED_WITHIN_RAD = 0.2  # largest deviation from a linear fit of the columns' bearings

Numbers = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Unmeasured:
    """Counts of near and free rays, ahead and behind; bearings of free rays ahead, if known, rad."""

    near_ahead: int = 0
    near_behind: int = 0
    free_ahead: int = 0
    free_bearings: tuple[float, ...] = ()


def unmeasured_rays(
    points: tuple[Numbers, Numbers, Numbers],
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
    columns: npt.NDArray[np.int_], measured: Numbers, width: int
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

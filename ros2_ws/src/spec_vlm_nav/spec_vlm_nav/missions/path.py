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

"""The way back: the driven path, reversed and simplified; metres, in the odometry frame."""

from __future__ import annotations

from collections.abc import Sequence
import math

from spec_vlm_nav.missions.record import Point

MOST_POINTS = 4000
ASIDE_M = 0.08  # largest deviation of the way back from the driven path
JUMP_M, JUMP_RAD = 0.5, 1.0  # a larger step between two messages means that odometry was reset
THERE_M = 0.15  # a corner counts as reached within that


def distance(a: Point, b: Point) -> float:
    """Return the distance between two points."""
    return math.hypot(a[0] - b[0], a[1] - b[1])


def grow(path: list[Point], point: Point, spacing_m: float) -> float:
    """
    Add a point if it is `spacing_m` from the last; returns the spacing for the next call.

    A path longer than MOST_POINTS keeps every second point, and its spacing doubles.
    """
    if path and distance(path[-1], point) < spacing_m:
        return spacing_m
    path.append(point)
    if len(path) <= MOST_POINTS:
        return spacing_m
    path[:] = path[::2]
    return spacing_m * 2


def nearest(path: Sequence[Point], point: Point) -> int:
    """Return the index of the path's point nearest to `point`; the last of equals."""
    return min(range(len(path)), key=lambda i: (round(distance(path[i], point), 3), -i))


def index_back(path: Sequence[Point], metres: float) -> int:
    """Return the index of the point `metres` back along a path; 0 if the path is shorter."""
    left = metres
    for i in range(len(path) - 1, 0, -1):
        left -= distance(path[i], path[i - 1])
        if left <= 0:
            return i - 1
    return 0


def straightened(path: Sequence[Point], aside_m: float = ASIDE_M) -> list[Point]:
    """Return the corners of a path (Douglas-Peucker), including its ends."""
    kept, waiting = {0, len(path) - 1}, [(0, len(path) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        asides = [_aside(path[i], path[first], path[last]) for i in range(first + 1, last)]
        worst = max(range(len(asides)), key=asides.__getitem__)
        if asides[worst] > aside_m:
            middle = first + 1 + worst
            kept.add(middle)
            waiting += [(first, middle), (middle, last)]
    return [path[i] for i in sorted(kept)] if path else []


def way_back(path: Sequence[Point], to: int) -> list[Point]:
    """Return the corners of the way from the end of the path back to its point `to`."""
    return straightened(list(reversed(path[to:])))


def _aside(point: Point, a: Point, b: Point) -> float:
    """Return the distance of a point from the straight line between two others."""
    length = distance(a, b)
    if length < 1e-9:
        return distance(point, a)
    share = ((point[0] - a[0]) * (b[0] - a[0]) + (point[1] - a[1]) * (b[1] - a[1])) / length**2
    share = min(1.0, max(0.0, share))
    return distance(point, (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])))


def first_near(path: Sequence[Point], point: Point, within_m: float) -> int:
    """Return the first index within a distance of a point; the last index if there is none."""
    return next((i for i, p in enumerate(path) if distance(p, point) <= within_m), len(path) - 1)

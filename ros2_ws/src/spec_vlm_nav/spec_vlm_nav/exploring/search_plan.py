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
Chooses the next look: the place and heading with the highest detection probability per cost.

Costs are counted in decisions: a turn and a stride cost one each. (Maximal detection per effort is
the rule of optimal search theory.)
"""

from __future__ import annotations

from dataclasses import dataclass
import math

import numpy as np
from numpy.typing import NDArray
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.search_map import (
    between,
    CELL,
    CLEAR_LENGTH,
    FIELD,
    Grid,
    HEADINGS,
    SearchMap,
    SECTORS,
    SIZE,
    SOLID,
    WALKED,
    XS,
    YS,
)

STRIDE = 0.7  # metres; the model's "clear" refers to 0.8 m ahead
SHORTEST = 0.2  # metres; the shortest useful stride
MOST_TURN = math.radians(75)  # largest turn of one decision; the field of view is 90 degrees
LEAST_TURN = math.radians(10)  # a smaller turn is not worth a decision
REACH = 4.5  # metres of walking within which places are compared
WINDOW = 48  # cells per side of the window around the robot for path planning
SPACING = 3  # cells between compared places
LOOK = 0.5  # added cost in decisions, so that a small turn is not preferred for its zero cost
UNKNOWN = 2.5  # cost factor of unknown cells
BLOCKED = 5.0  # cost factor where the model called the way out blocked
SAYS_CLEAR, SAYS_BLOCKED = math.radians(10), math.radians(14)  # half width of such a judgement

_STEPS = tuple((dx, dy, CELL * math.hypot(dx, dy)) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)


@dataclass(frozen=True)
class Leg:
    """The next motion of a search. turn: radians, left positive; 0: walk `distance` metres straight ahead."""

    turn: float
    distance: float = 0.0


def next_leg(known: SearchMap, place: Pose) -> Leg:
    """Return the first motion towards the look with the highest value for its cost."""
    costs, corner = ways_from(known, place)
    cells = _places(known, place, costs, corner)
    points = np.array([(place.x, place.y), *(known.middle_of(*cell) for cell in cells)])
    walks = np.array([0.0, *(costs[i - corner[0], j - corner[1]] for i, j in cells)])
    away = points - points[0]
    arrivals = np.arctan2(away[:, 1], away[:, 0])
    arrivals[0] = place.yaw
    turns = _turns(arrivals[:, None] - place.yaw) + _turns(HEADINGS - arrivals[:, None])
    steps = turns + np.ceil(walks / STRIDE)[:, None]
    found = known.finds(points)
    wide = round(FIELD / np.pi * SECTORS / 2 - 0.5)  # sectors to either side that are in view
    seen = sum(np.roll(found, k, 1) for k in range(-wide, wide + 1))
    worth = np.where(steps < 0.5, 0.0, seen / (steps + LOOK))
    at, k = divmod(int(worth.argmax()), SECTORS)
    if at == 0:
        turn = wrap(float(HEADINGS[k]) - place.yaw)
        turn = turn if abs(turn) >= LEAST_TURN else math.copysign(LEAST_TURN, turn)
        return Leg(limited(turn))
    return _first_leg(known, place, costs, corner, cells[at - 1])


def limited(angle: float) -> float:
    """Return a turn limited to that of one decision."""
    return max(-MOST_TURN, min(MOST_TURN, angle))


def ways_from(known: SearchMap, place: Pose) -> tuple[Grid, tuple[int, int]]:
    """
    Return the costs of the cheapest ways from here, [WINDOW, WINDOW], metres; inf: out of reach.

    Also returns the first cell of the window.
    """
    i0, j0 = known.cell(place.x, place.y)
    corner = (_clamped(i0 - WINDOW // 2), _clamped(j0 - WINDOW // 2))
    window = (slice(corner[0], corner[0] + WINDOW), slice(corner[1], corner[1] + WINDOW))
    solid = known.solid[window]
    price = np.where(solid < -0.3, 1.0, UNKNOWN + np.maximum(solid, 0.0))
    price *= _ways_out(known, place, window)
    price[solid >= SOLID] = np.inf
    cost = np.full((WINDOW + 2, WINDOW + 2), np.inf)
    inner = cost[1:-1, 1:-1]
    here = (i0 - corner[0], j0 - corner[1])
    inner[here], price[here] = 0.0, 1.0
    steps = [(dx, dy, length * price) for dx, dy, length in _STEPS]
    for _ in range(WINDOW):
        before = inner.copy()
        for dx, dy, length in steps:
            other = cost[1 + dx : WINDOW + 1 + dx, 1 + dy : WINDOW + 1 + dy]
            np.minimum(inner, other + length, out=inner)
        if np.array_equal(before, inner):
            break
    return np.where(inner <= REACH, inner, np.inf), corner


def _clamped(first: int) -> int:
    return max(0, min(SIZE - WINDOW, first))


def _ways_out(known: SearchMap, place: Pose, window: tuple[slice, slice]) -> Grid:
    """Return cost factors of the nearby cells from the model's judgements of the ways out."""
    factor = np.ones((WINDOW, WINDOW))
    said = known.ways_out(place)
    if not said:
        return factor
    dx, dy = XS[window] - (place.x - known.x), YS[window] - (place.y - known.y)
    near = (np.hypot(dx, dy) < CLEAR_LENGTH) & (known.solid[window] > WALKED + 1.0)
    towards = np.arctan2(dy, dx)
    for wanted, width, value in ((False, SAYS_BLOCKED, BLOCKED), (True, SAYS_CLEAR, 1.0)):
        for yaw, clear in said:
            if clear is wanted:
                factor[near & (between(towards, yaw) < width)] = value
    return factor


def _snapped(known: SearchMap, place: Pose, heading: float) -> float:
    """Return the heading, or a close one from here that the model called clear."""
    clear = [yaw for yaw, is_clear in known.ways_out(place) if is_clear]
    near = [yaw for yaw in clear if abs(wrap(yaw - heading)) < SAYS_CLEAR]
    return min(near, key=lambda yaw: abs(wrap(yaw - heading)), default=heading)


def _places(known: SearchMap, place: Pose, costs: Grid, corner: tuple[int, int]) -> list[tuple[int, int]]:
    """Return cells within reach, SPACING apart, without the robot's own."""
    i0, j0 = known.cell(place.x, place.y)
    span = WINDOW // 2 // SPACING * SPACING
    cells = []
    for i in range(i0 - span, i0 + span + 1, SPACING):
        for j in range(j0 - span, j0 + span + 1, SPACING):
            a, b = i - corner[0], j - corner[1]
            inside = 0 <= a < WINDOW and 0 <= b < WINDOW and (i, j) != (i0, j0)
            if inside and math.isfinite(costs[a, b]):
                cells.append((i, j))
    return cells


def _turns(angle: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return how many decisions a turn takes."""
    size = between(np.asarray(angle), 0.0)
    return np.where(size < LEAST_TURN, 0.0, np.ceil(size / MOST_TURN - 0.05))


def _first_leg(
    known: SearchMap, place: Pose, costs: Grid, corner: tuple[int, int], goal: tuple[int, int]
) -> Leg:
    """Return the first straight piece of the way to a cell."""
    heading = far = 0.0
    for cell in _way_back(costs, corner, goal):  # the farthest cell reachable in a straight line
        px, py = known.middle_of(*cell)
        heading = math.atan2(py - place.y, px - place.x)
        far = math.hypot(px - place.x, py - place.y)
        if far <= STRIDE + CELL and not known.is_solid(place, heading, far):
            break
    turn = wrap(_snapped(known, place, heading) - place.yaw)
    if abs(turn) >= LEAST_TURN:
        return Leg(limited(turn))
    return Leg(0.0, min(max(far, SHORTEST), STRIDE))


def _way_back(costs: Grid, corner: tuple[int, int], goal: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the cells of the way from a goal back to the robot, without the robot's own cell."""
    a, b = goal[0] - corner[0], goal[1] - corner[1]
    way = []
    while costs[a, b] > 0.0:
        way.append((a + corner[0], b + corner[1]))
        beside = ((a + dx, b + dy) for dx, dy, _ in _STEPS if 0 <= a + dx < WINDOW and 0 <= b + dy < WINDOW)
        a, b = min(beside, key=lambda cell: float(costs[cell]))
    return way

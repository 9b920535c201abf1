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
The search's map: where the target may be, and where the robot can walk.

It consists of two grids in the odometry frame, built only from the robot's motions, their results,
and the model's answers; there is no map of the building and no depth image. A look without the
target lowers the target's likelihood everywhere in view, less so farther away, where it may be
hidden. The grids move with the robot, so they never grow. Knowledge fades, so that odometry drift
excludes no place for ever. All objects are immutable and all functions deterministic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spec_vlm_nav.common.geometry import Pose

Grid = NDArray[np.floating[Any]]

EXTENT = 14.4  # metres, of both grids
HALF = EXTENT / 2
CELL, SIZE = 0.2, 72  # grid of where the robot can walk: metres, cells per side
COARSE, ROUGH = 0.4, 36  # grid of where the target may be
EDGE = 4.8  # distance from the middle, metres, at which the grids move with the robot
SPREAD = 3.5  # metres: scale of the prior distance between start and target
FADES = 0.01  # share of the knowledge that fades with each look

FIELD = math.radians(42.0)  # half of the field of view in which the target would be noticed
SURE = 0.95  # probability that a near target in view is noticed
CLEAR_SIGHT = 1.5  # metres up to which the target is not hidden
SIGHT = 3.5  # metres beyond that at which the probability has dropped by a factor e
SHADOW = 0.35  # factor of the probability behind something solid
BEHIND = 0.5  # metres behind it where this begins
SPOTTED = 0.01  # belief that a cell reaches only after a sighting of the target
DOUBT = 0.35  # one look without the target lowers such a cell at most to this share
NEW = 2.0  # metres between two looks that are independent
NOTHING_NEW = 0.05  # information of a second look from the same place
SAME_PLACE = 0.15  # metres
LOOKS = 48  # looks remembered
SECTORS = 24  # number of directions; the first points backward
RAYS = 72  # number of rays for occlusion

WALKED, SAID_CLEAR, SAID_BLOCKED = -3.0, -0.6, 0.7  # log-odds
SAID_MOST, TOUCHED = 3.0, 4.0  # the model's answers never override a contact
SOLID = 1.2  # log-odds from which a cell is not walked through
CLEAR_LENGTH = 0.8  # metres ahead that "clear" refers to


def _cells(cell: float, size: int) -> tuple[Grid, Grid]:
    axis = ((np.arange(size) + 0.5) * cell - HALF).astype(np.float32)
    xs, ys = np.meshgrid(axis, axis, indexing="ij")
    return xs, ys


XS, YS = _cells(CELL, SIZE)  # middles of the cells, metres from the middle of the grids
COARSE_XS, COARSE_YS = _cells(COARSE, ROUGH)
HEADINGS = (np.arange(SECTORS) * 2 * math.pi / SECTORS - math.pi).astype(np.float32)


@dataclass(frozen=True)
class SearchedView:
    """A look without the target: its pose, and whether the model called the way ahead clear."""

    x: float
    y: float
    yaw: float
    clear: bool | None


@dataclass(frozen=True, eq=False)
class SearchMap:
    """
    Both grids, and the position of their middle, metres in the odometry frame.

    belief: probability that the target is in a cell, float32 [ROUGH, ROUGH]; sums to 1.
    solid: log-odds that the robot's middle cannot be in a cell, float32 [SIZE, SIZE]; 0: unknown.
    looks: looks without the target, oldest first.
    """

    belief: Grid
    solid: Grid
    x: float = 0.0
    y: float = 0.0
    looks: tuple[SearchedView, ...] = ()

    @staticmethod
    def around(x: float, y: float) -> SearchMap:
        """Return an empty map around a point."""
        return SearchMap(PRIOR, np.zeros((SIZE, SIZE), np.float32), x, y)

    # -- updates

    def following(self, place: Pose) -> SearchMap:
        """Return the map, moved if the robot is about to leave it."""
        dx, dy = place.x - self.x, place.y - self.y
        if max(abs(dx), abs(dy)) < EDGE:
            return self
        i, j = round(dx / COARSE), round(dy / COARSE)
        if max(abs(i), abs(j)) >= ROUGH:
            return SearchMap.around(place.x, place.y)
        belief = _shifted(self.belief, i, j, float(self.belief.mean()))
        solid = _shifted(self.solid, 2 * i, 2 * j, 0.0)
        x, y = self.x + i * COARSE, self.y + j * COARSE
        return replace(self, belief=belief / belief.sum(), solid=solid, x=x, y=y)

    def without_target(self, place: Pose, clear: bool | None) -> SearchMap:
        """Return the map after a look from here that did not show the target."""
        points = np.array([[place.x, place.y]])
        likely, _, towards = self._likely(points)
        off = between(towards[0], place.yaw)
        missed = np.where(off <= FIELD, 1.0 - likely[0], 1.0).reshape(ROUGH, ROUGH)
        missed = np.where(self.belief > SPOTTED, np.maximum(missed, DOUBT), missed)
        looks = (*self.looks, SearchedView(place.x, place.y, place.yaw, clear))[-LOOKS:]
        return replace(self, belief=_faded(self.belief * missed), looks=looks)

    def with_target(self, place: Pose, bearing: float, distance: float, trust: float) -> SearchMap:
        """Return the map after the target was seen. bearing: radians; distance: metres."""
        x = place.x - self.x + distance * math.cos(place.yaw + bearing)
        y = place.y - self.y + distance * math.sin(place.yaw + bearing)
        wide = 0.3 + 0.12 * distance
        spot = np.exp(-((COARSE_XS - x) ** 2 + (COARSE_YS - y) ** 2) / (2 * wide**2))
        total = float(spot.sum())
        if total < 1e-6:  # outside
            return self
        return replace(self, belief=_faded((1.0 - trust) * self.belief + trust * spot / total))

    def walked(self, place: Pose) -> SearchMap:
        """Return the map with the robot's own place marked free."""
        at = (XS - (place.x - self.x)) ** 2 + (YS - (place.y - self.y)) ** 2 <= CELL**2
        return self._with(at, np.minimum(self.solid, WALKED))

    def touched(self, place: Pose, heading: float) -> SearchMap:
        """Return the map with an obstacle that the robot touched on this heading."""
        along, across = self._along(place, heading)
        at = (along > 0.08) & (along < 0.5) & (np.abs(across) < 0.22)
        return self._with(at, np.maximum(self.solid, TOUCHED))

    def said(self, place: Pose, clear: bool) -> SearchMap:
        """Return the map after the model called the way straight ahead clear or blocked."""
        along, across = self._along(place, place.yaw)
        if clear:
            at = (along > 0.0) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.15)
        else:
            at = (along > 0.35) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.2)
        told = np.clip(self.solid + (SAID_CLEAR if clear else SAID_BLOCKED), WALKED, SAID_MOST)
        return self._with(at & (self.solid < TOUCHED), told)

    def refused(self, place: Pose) -> SearchMap:
        """Return the map with the way straight ahead marked solid, because it must not be walked."""
        along, across = self._along(place, place.yaw)
        at = (along > 0.15) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.2)
        return self._with(at, np.maximum(self.solid, SOLID))

    # -- queries

    def finds(self, points: NDArray[np.float64]) -> Grid:
        """
        Return the probability that a look finds the target, [n, SECTORS]; points: [n, 2], metres.

        Each sector counts separately; information of earlier looks is discounted.
        """
        likely, sector, _ = self._likely(points)
        found = likely * self.belief.ravel()
        at = sector + SECTORS * np.arange(len(points))[:, None]
        flat = np.bincount(at.ravel(), found.ravel(), SECTORS * len(points))
        return flat.astype(float).reshape(len(points), SECTORS)

    def ways_out(self, place: Pose) -> list[tuple[float, bool]]:
        """Return the headings of looks from here, and whether the way was called clear."""
        return [
            (look.yaw, look.clear)
            for look in self.looks
            if look.clear is not None and math.hypot(look.x - place.x, look.y - place.y) < SAME_PLACE
        ]

    def is_solid(self, place: Pose, heading: float, length: float) -> bool:
        """Return whether a straight way crosses a solid cell."""
        return any(value >= SOLID for value in self._on_the_way(place, heading, length))

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Return the `solid` cell of a point; it may be outside the grid."""
        return math.floor((x - self.x + HALF) / CELL), math.floor((y - self.y + HALF) / CELL)

    def middle_of(self, i: int, j: int) -> tuple[float, float]:
        """Return the middle of a cell, metres."""
        return (i + 0.5) * CELL - HALF + self.x, (j + 0.5) * CELL - HALF + self.y

    # -- internals

    def _with(self, at: NDArray[np.bool_], value: Grid) -> SearchMap:
        return replace(self, solid=np.where(at, value, self.solid).astype(np.float32))

    def _along(self, place: Pose, heading: float) -> tuple[Grid, Grid]:
        """Return each cell's distance along a heading from here, and to its left; metres."""
        x, y = XS - (place.x - self.x), YS - (place.y - self.y)
        cos, sin = math.cos(heading), math.sin(heading)
        return x * cos + y * sin, y * cos - x * sin

    def _on_the_way(self, place: Pose, heading: float, length: float) -> list[float]:
        steps = max(2, math.ceil(length / (CELL / 2)))
        values = []
        for step in range(1, steps + 1):
            far = length * step / steps
            x, y = place.x + far * math.cos(heading), place.y + far * math.sin(heading)
            i, j = self.cell(x, y)
            inside = 0 <= i < SIZE and 0 <= j < SIZE
            values.append(float(self.solid[i, j]) if inside else 0.0)
        return values

    def _likely(self, points: NDArray[np.float64]) -> tuple[Grid, NDArray[np.int_], Grid]:
        """
        Return the probability that a look from each point newly finds the target in each cell.

        Also returns each cell's sector and its direction, radians; all [n, ROUGH * ROUGH].
        """
        near = (points - (self.x, self.y)).astype(np.float32)
        dx = COARSE_XS.ravel() - near[:, :1]
        dy = COARSE_YS.ravel() - near[:, 1:]
        far, towards = np.hypot(dx, dy), np.arctan2(dy, dx)
        turns = (towards + np.float32(math.pi)) / np.float32(2 * math.pi)
        sector = (turns * SECTORS + 0.5).astype(int) % SECTORS
        likely = SURE * np.exp(-((np.maximum(far - CLEAR_SIGHT, 0.0) / SIGHT) ** 2))
        first = self._first_solid(near)
        if first is not None:
            rays = (turns * RAYS).astype(int) % RAYS
            hidden = far > np.take_along_axis(first, rays, 1) + BEHIND
            likely = np.where(hidden, SHADOW * likely, likely)
        new = np.take_along_axis(self._novelty(points), sector, 1)
        return likely * new, sector, towards

    def _first_solid(self, near: Grid) -> Grid | None:
        """Return the distance from points to the first solid cell along each ray, [n, RAYS]."""
        solid = self.solid >= SOLID
        if not solid.any():
            return None
        dx, dy = XS[solid] - near[:, :1], YS[solid] - near[:, 1:]
        rays = ((np.arctan2(dy, dx) + math.pi) / (2 * math.pi) * RAYS).astype(int) % RAYS
        first = np.full((len(near), RAYS), np.inf, np.float32)
        np.minimum.at(first, (np.arange(len(near))[:, None], rays), np.hypot(dx, dy))
        return first

    def _novelty(self, points: NDArray[np.float64]) -> Grid:
        """Return the share of new information of looks from points, [n, SECTORS]."""
        new = np.ones((len(points), SECTORS), np.float32)
        if self.looks:
            looks = np.array([(look.x, look.y, look.yaw) for look in self.looks])
            apart = np.hypot(*(points[:, None] - looks[:, :2]).transpose(2, 0, 1))[..., None]
            covered = between(HEADINGS, looks[:, 2:]) <= FIELD  # [looks, SECTORS]
            apart = np.where(covered, apart, np.inf).min(1)
            new = np.clip((apart / NEW) ** 2, NOTHING_NEW, 1.0)
        return new


def between(one: Grid, other: Grid | float) -> Grid:
    """Return the absolute angle between directions, radians."""
    return np.abs((one - other + math.pi) % (2 * math.pi) - math.pi)


def _prior() -> Grid:
    prior = np.exp(-np.hypot(COARSE_XS, COARSE_YS) / SPREAD)
    return (prior / prior.sum()).astype(np.float32)


PRIOR = _prior()


def _faded(belief: Grid) -> Grid:
    total = float(belief.sum())
    if total <= 0.0:
        return PRIOR
    return ((1.0 - FADES) * belief / total + FADES * PRIOR).astype(np.float32)


def _shifted(grid: Grid, i: int, j: int, fill: float) -> Grid:
    """Return the grid shifted by (i, j) cells; new cells get `fill`."""
    moved = np.full_like(grid, fill)
    n = len(grid)
    moved[max(-i, 0) : n - max(i, 0), max(-j, 0) : n - max(j, 0)] = grid[
        max(i, 0) : n - max(-i, 0), max(j, 0) : n - max(-j, 0)
    ]
    return moved

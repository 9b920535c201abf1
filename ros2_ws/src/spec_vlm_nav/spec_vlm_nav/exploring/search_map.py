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
What a search remembers of a place: where the target may be, and where the robot can walk.

Two grids in the frame of the robot's own odometry, made only from what the robot has: its motions
and how they ended, and the model's words. There is no map of the building and no depth image: a
look that does not show the target makes it less likely to be anywhere in view, the less so the
farther away, because something may stand in front of it. The grids move along with the robot, so
they never grow, and what was learnt fades, so a drifting odometry excludes nothing for ever.
Everything is immutable and deterministic.
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
CELL, SIZE = 0.2, 72  # of the grid of where the robot can be: metres, cells a side
COARSE, ROUGH = 0.4, 36  # of the grid of where the target may be
EDGE = 4.8  # metres from the middle at which the grids move along
SPREAD = 3.5  # metres: how far from the start the target is, before anything was seen
FADES = 0.01  # of what was learnt, each look

FIELD = math.radians(42.0)  # half of the field of view in which the target would be noticed
SURE = 0.95  # that a near target in view is noticed
CLEAR_SIGHT = 1.5  # metres up to which nothing hides it
SIGHT = 3.5  # metres beyond that at which it is noticed a factor e less often
SHADOW = 0.35  # of a look that goes on behind something solid
BEHIND = 0.5  # metres behind it
SPOTTED = 0.01  # as likely as that a cell is only where the target was seen before, and then
DOUBT = 0.35  # one look that does not show it takes away no more of it than down to this share
NEW = 2.0  # metres between two looks that tell as much as each of them alone
NOTHING_NEW = 0.05  # what a second look from the same place tells: what hid the target still does
SAME_PLACE = 0.15  # metres
LOOKS = 48  # looks that are remembered
SECTORS = 24  # directions that are distinguished; the first points backwards
RAYS = 72  # directions in which something solid is looked for

WALKED, SAID_CLEAR, SAID_BLOCKED = -3.0, -0.6, 0.7  # log-odds
SAID_MOST, TOUCHED = 3.0, 4.0  # what the body felt, no word takes back
SOLID = 1.2  # from here on a cell is not walked through
CLEAR_LENGTH = 0.8  # metres ahead that "clear" speaks of


def _cells(cell: float, size: int) -> tuple[Grid, Grid]:
    axis = ((np.arange(size) + 0.5) * cell - HALF).astype(np.float32)
    xs, ys = np.meshgrid(axis, axis, indexing="ij")
    return xs, ys


XS, YS = _cells(CELL, SIZE)  # middles of the cells, metres from the middle of the grids
COARSE_XS, COARSE_YS = _cells(COARSE, ROUGH)
HEADINGS = (np.arange(SECTORS) * 2 * math.pi / SECTORS - math.pi).astype(np.float32)


@dataclass(frozen=True)
class SearchedView:
    """From where the target was not seen, and what the model said of the way straight ahead."""

    x: float
    y: float
    yaw: float
    clear: bool | None


@dataclass(frozen=True, eq=False)
class SearchMap:
    """
    Both grids, and where their middle is, metres in the odometry's frame.

    belief: how likely the target is in a cell, float32 [ROUGH, ROUGH]; sums to 1. solid: log-odds
    that the robot's middle cannot be there, float32 [SIZE, SIZE]; 0: nothing is known. looks:
    those that did not show the target, oldest first.
    """

    belief: Grid
    solid: Grid
    x: float = 0.0
    y: float = 0.0
    looks: tuple[SearchedView, ...] = ()

    @staticmethod
    def around(x: float, y: float) -> SearchMap:
        """Return the map of a place of which nothing is known."""
        return SearchMap(PRIOR, np.zeros((SIZE, SIZE), np.float32), x, y)

    # -- what is learnt

    def following(self, place: Pose) -> SearchMap:
        """Return the map, moved along if the robot is about to leave it."""
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
        off = _between(towards[0], place.yaw)
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
        """Return the map with the robot's own place known to be free."""
        at = (XS - (place.x - self.x)) ** 2 + (YS - (place.y - self.y)) ** 2 <= CELL**2
        return self._with(at, np.minimum(self.solid, WALKED))

    def touched(self, place: Pose, heading: float) -> SearchMap:
        """Return the map with something that the robot touched when it went this way."""
        along, across = self._along(place, heading)
        at = (along > 0.08) & (along < 0.5) & (np.abs(across) < 0.22)
        return self._with(at, np.maximum(self.solid, TOUCHED))

    def said(self, place: Pose, clear: bool) -> SearchMap:
        """Return the map after the model called the way straight ahead clear, or blocked."""
        along, across = self._along(place, place.yaw)
        if clear:
            at = (along > 0.0) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.15)
        else:
            at = (along > 0.35) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.2)
        told = np.clip(self.solid + (SAID_CLEAR if clear else SAID_BLOCKED), WALKED, SAID_MOST)
        return self._with(at & (self.solid < TOUCHED), told)

    def refused(self, place: Pose) -> SearchMap:
        """Return the map with the way straight ahead taken for solid: it may not be walked."""
        along, across = self._along(place, place.yaw)
        at = (along > 0.15) & (along < CLEAR_LENGTH) & (np.abs(across) < 0.2)
        return self._with(at, np.maximum(self.solid, SOLID))

    # -- what is asked

    def finds(self, points: NDArray[np.float64]) -> Grid:
        """
        Return how likely looks from points, [n, 2] metres, find the target, [n, SECTORS].

        Each sector counts for itself; what earlier looks have told already does not count.
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
            if look.clear is not None
            and math.hypot(look.x - place.x, look.y - place.y) < SAME_PLACE
        ]

    def is_solid(self, place: Pose, heading: float, length: float) -> bool:
        """Whether something known is in a straight way."""
        return any(value >= SOLID for value in self._on_the_way(place, heading, length))

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Return the cell of a point in the grid of where the robot can be; may be outside."""
        return math.floor((x - self.x + HALF) / CELL), math.floor((y - self.y + HALF) / CELL)

    def middle_of(self, i: int, j: int) -> tuple[float, float]:
        """Return the middle of a cell, metres."""
        return (i + 0.5) * CELL - HALF + self.x, (j + 0.5) * CELL - HALF + self.y

    # -- within

    def _with(self, at: NDArray[np.bool_], value: Grid) -> SearchMap:
        return replace(self, solid=np.where(at, value, self.solid).astype(np.float32))

    def _along(self, place: Pose, heading: float) -> tuple[Grid, Grid]:
        """Return how far each cell is along a heading from here, and to its left; metres."""
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
        Return how likely looks from points towards each cell find what no look has found yet.

        Also the sector each cell is in, and its direction, radians; all [n, ROUGH * ROUGH].
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
        """Return how far the first solid cell is from points along each ray, [n, RAYS]."""
        solid = self.solid >= SOLID
        if not solid.any():
            return None
        dx, dy = XS[solid] - near[:, :1], YS[solid] - near[:, 1:]
        rays = ((np.arctan2(dy, dx) + math.pi) / (2 * math.pi) * RAYS).astype(int) % RAYS
        first = np.full((len(near), RAYS), np.inf, np.float32)
        np.minimum.at(first, (np.arange(len(near))[:, None], rays), np.hypot(dx, dy))
        return first

    def _novelty(self, points: NDArray[np.float64]) -> Grid:
        """Return how much looks from points would tell that no other has told, [n, SECTORS]."""
        new = np.ones((len(points), SECTORS), np.float32)
        if self.looks:
            looks = np.array([(look.x, look.y, look.yaw) for look in self.looks])
            apart = np.hypot(*(points[:, None] - looks[:, :2]).transpose(2, 0, 1))[..., None]
            covered = _between(HEADINGS, looks[:, 2:]) <= FIELD  # [looks, SECTORS]
            apart = np.where(covered, apart, np.inf).min(1)
            new = np.clip((apart / NEW) ** 2, NOTHING_NEW, 1.0)
        return new


def _between(one: Grid, other: Grid | float) -> Grid:
    """Return the size of the angle between directions, radians."""
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
    """Return the grid moved by this many cells, new ones filled."""
    moved = np.full_like(grid, fill)
    n = len(grid)
    moved[max(-i, 0) : n - max(i, 0), max(-j, 0) : n - max(j, 0)] = grid[
        max(i, 0) : n - max(-i, 0), max(j, 0) : n - max(-j, 0)
    ]
    return moved

# SPDX-License-Identifier: Apache-2.0
"""Shortest paths on the true map, for path-length scores and oracles. The robot's own software never uses it.

A *grid* marks where the robot's centre may be. A *field* holds, for every free cell, the length of the shortest way to
a set of goal cells, so that one sweep serves all later queries for a room and a target. Paths are then straightened.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from navsim.geometry import FloatArray, Pose2D
from navsim.rooms import Room, SceneObject

ROBOT_RADIUS = 0.22
CELL = 0.10
MARGIN = 0.08  # so that a straight line between two free cells stays free as well
GOAL_DISTANCE = 0.65  # from the robot's centre to the target's surface
COMFORT = 0.18  # preferred clearance beyond the margin on a comfortable path
DISCOMFORT = 1.5  # relative extra cost of a path without this clearance
_STEPS = tuple((dx, dy, math.hypot(dx, dy)) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)


@dataclass(frozen=True, eq=False)
class Grid:
    """Free space of a room. Arrays are [nx, ny]; cell (i, j) is centred at `x0 + i * CELL`, `y0 + j * CELL`."""

    room: Room
    x0: float
    y0: float
    xs: FloatArray
    ys: FloatArray
    clearance: FloatArray
    free: np.ndarray

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """The cell of a point, clipped to the grid."""
        i = min(max(round((x - self.x0) / CELL), 0), self.free.shape[0] - 1)
        j = min(max(round((y - self.y0) / CELL), 0), self.free.shape[1] - 1)
        return i, j

    @cached_property
    def connected_cells(self) -> tuple[tuple[float, float], ...]:
        """Centres of the cells of the largest connected free floor."""
        left = self.free.copy()
        best = np.zeros_like(left)
        while left.any():
            seed = np.zeros_like(left)
            seed[np.unravel_index(np.argmax(left), left.shape)] = True
            reached = np.isfinite(_sweep(left, seed, np.ones(left.shape)))
            if reached.sum() > best.sum():
                best = reached
            left &= ~reached
        return tuple(zip(self.xs[best].tolist(), self.ys[best].tolist(), strict=True))


@lru_cache(maxsize=32)
def grid_of(room: Room) -> Grid:
    """The room's grid (cached)."""
    x0, y0, x1, y1 = room.bounds
    nx, ny = int((x1 - x0) / CELL) + 1, int((y1 - y0) / CELL) + 1
    xs, ys = np.meshgrid(x0 + np.arange(nx) * CELL, y0 + np.arange(ny) * CELL, indexing="ij")
    clearance = np.full((nx, ny), np.inf)
    for shape in room.obstacles:
        np.minimum(clearance, shape.distances(xs, ys), out=clearance)
    inside = np.zeros((nx, ny), dtype=bool)
    for area in room.areas:
        inside |= (xs >= area.x0) & (xs <= area.x1) & (ys >= area.y0) & (ys <= area.y1)
    return Grid(room, x0, y0, xs, ys, clearance, inside & (clearance >= ROBOT_RADIUS + MARGIN))


def _sweep(free: np.ndarray, goals: np.ndarray, weight: FloatArray) -> FloatArray:
    """Length of the cheapest 8-connected way from each free cell to a goal, inf where there is none."""
    nx, ny = free.shape
    cost = np.full((nx + 2, ny + 2), np.inf)
    cost[1:-1, 1:-1][goals & free] = 0.0
    inner = cost[1:-1, 1:-1]
    # An infinite step price keeps blocked cells at infinity during the sweep. If they were only reset after it, a way
    # could pass through them, and the field would have local minima.
    price = np.where(free, CELL * weight, np.inf)
    while True:
        before = inner.copy()
        for dx, dy, length in _STEPS:
            np.minimum(inner, cost[1 + dx : nx + 1 + dx, 1 + dy : ny + 1 + dy] + length * price, out=inner)
        if np.array_equal(before, inner):
            return inner.copy()


@lru_cache(maxsize=64)
def field_to(room: Room, target: SceneObject, comfortable: bool = False) -> FloatArray:
    """Length of the way to `target` for each cell of the room's grid, [nx, ny], inf where there is none."""
    grid = grid_of(room)
    near = target.shape.distances(grid.xs, grid.ys)
    for reach in (GOAL_DISTANCE, GOAL_DISTANCE + 0.13):
        goals = grid.free & (near <= reach)
        for i, j in zip(*np.nonzero(goals), strict=True):
            goals[i, j] = not _wall_between(room, float(grid.xs[i, j]), float(grid.ys[i, j]), target)
        if goals.any():
            break
    weight = np.ones(grid.free.shape)
    if comfortable:
        weight += DISCOMFORT * np.clip(1.0 - (grid.clearance - ROBOT_RADIUS - MARGIN) / COMFORT, 0.0, 1.0)
    return _sweep(grid.free, goals, weight)


def _wall_between(room: Room, x: float, y: float, target: SceneObject) -> bool:
    tx, ty = target.shape.nearest(x, y)
    span = math.hypot(tx - x, ty - y)
    if span < 1e-6:
        return False
    ux, uy = (tx - x) / span, (ty - y) / span
    return any(wall.shape.ray(x, y, ux, uy) < span - 1e-3 for wall in room.walls)


def _descend(grid: Grid, field: FloatArray, pose: Pose2D) -> list[tuple[float, float]]:
    """Cells from the pose down to a goal; empty when no goal can be reached."""
    i, j = grid.cell(pose.x, pose.y)
    if not np.isfinite(field[i, j]):
        gap = np.where(np.isfinite(field), np.hypot(grid.xs - pose.x, grid.ys - pose.y), np.inf)
        i, j = (int(k) for k in np.unravel_index(np.argmin(gap), gap.shape))
        if gap[i, j] > 4 * CELL:  # the robot is enclosed, not just close to an obstacle
            return []
    points = [(pose.x, pose.y), (float(grid.xs[i, j]), float(grid.ys[i, j]))]
    nx, ny = field.shape
    while field[i, j] > 0.0:
        options = [
            (field[i + dx, j + dy], i + dx, j + dy)
            for dx, dy, _ in _STEPS
            if 0 <= i + dx < nx and 0 <= j + dy < ny
        ]
        _, i, j = min(options)
        points.append((float(grid.xs[i, j]), float(grid.ys[i, j])))
    return points


def _is_clear(grid: Grid, a: tuple[float, float], b: tuple[float, float], clearance: float) -> bool:
    """Whether the robot's centre can go straight from a to b keeping this clearance, judged on the exact geometry."""
    span = math.hypot(b[0] - a[0], b[1] - a[1])
    travelled = 0.0
    while travelled < span:
        t = travelled / span
        room_left = grid.room.clearance(a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])) - clearance
        if room_left < 0.0:
            return False
        travelled += max(room_left, 0.02)  # no obstacle can be nearer within the free distance
    return True


def plan(
    room: Room, pose: Pose2D, target: SceneObject, comfortable: bool = False
) -> tuple[tuple[float, float], ...]:
    """Return straightened waypoints from the pose to a stopping place at the target; empty if there is no way."""
    grid = grid_of(room)
    points = _descend(grid, field_to(room, target, comfortable), pose)
    if not points:
        return ()
    clearance = ROBOT_RADIUS + (MARGIN if comfortable else 0.02)
    pulled = [points[0]]
    at = 0
    while at < len(points) - 1:
        ahead = len(points) - 1
        while ahead > at + 1 and not _is_clear(grid, points[at], points[ahead], clearance):
            ahead -= 1
        pulled.append(points[ahead])
        at = ahead
    return tuple(pulled)


def path_length(points: tuple[tuple[float, float], ...]) -> float:
    """Length of a polyline [m]."""
    return sum(math.dist(a, b) for a, b in itertools.pairwise(points))


def shortest_path_length(room: Room, pose: Pose2D, target: SceneObject) -> float:
    """Length of the shortest way to a stopping place at the target [m]; 0 when there, inf when there is no way."""
    points = plan(room, pose, target)
    return path_length(points) if points else math.inf


def next_waypoint(
    room: Room, pose: Pose2D, target: SceneObject, lookahead: float = 1.0
) -> tuple[float, float] | None:
    """Return the next waypoint of a comfortable way, at most `lookahead` metres off, or None (also at the goal)."""
    points = plan(room, pose, target, comfortable=True)
    if len(points) < 2 or path_length(points) < CELL:
        return None
    x, y = points[1]
    if len(points) > 2 and math.dist(points[0], points[1]) < CELL:
        x, y = points[2]
    span = math.hypot(x - pose.x, y - pose.y)
    if span > lookahead:
        x, y = pose.x + (x - pose.x) * lookahead / span, pose.y + (y - pose.y) * lookahead / span
    return x, y

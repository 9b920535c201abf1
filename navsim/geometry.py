# SPDX-License-Identifier: Apache-2.0
"""Plane geometry of the simulator: poses, discs, oriented rectangles, distances and rays.

Everything is metres and radians in the world frame (REP-103: x forward, y left, yaw counter-clockwise). Pure functions
only; the scalar ones are plain Python because the base calls them a hundred times a second on a few shapes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pose2D:
    """Position [m] and heading [rad] in the plane."""

    x: float
    y: float
    yaw: float


def wrap_angle(angle: float) -> float:
    """Return the angle wrapped to (-pi, pi]."""
    wrapped = math.fmod(angle + math.pi, 2.0 * math.pi)
    if wrapped <= 0.0:
        wrapped += 2.0 * math.pi
    return wrapped - math.pi


def movement(before: Pose2D, after: Pose2D) -> tuple[float, float, float]:
    """Return the movement between two poses in the axes of the first: metres ahead and to the left, radians turned."""
    dx, dy = after.x - before.x, after.y - before.y
    cos, sin = math.cos(before.yaw), math.sin(before.yaw)
    return dx * cos + dy * sin, dy * cos - dx * sin, wrap_angle(after.yaw - before.yaw)


def moved(pose: Pose2D, ahead: float, aside: float, turned: float) -> Pose2D:
    """A pose after a movement in its own axes."""
    cos, sin = math.cos(pose.yaw), math.sin(pose.yaw)
    return Pose2D(
        pose.x + ahead * cos - aside * sin, pose.y + ahead * sin + aside * cos, wrap_angle(pose.yaw + turned)
    )


def bearing_to(pose: Pose2D, x: float, y: float) -> float:
    """Direction of a point seen from a pose [rad], left positive, in (-pi, pi]."""
    return wrap_angle(math.atan2(y - pose.y, x - pose.x) - pose.yaw)


@dataclass(frozen=True, slots=True)
class Disc:
    """A filled circle."""

    x: float
    y: float
    radius: float

    @property
    def reach(self) -> float:
        """Radius of the smallest circle around the centre that holds the shape."""
        return self.radius

    def distance(self, x: float, y: float) -> float:
        """Signed distance of a point to the outline, negative inside."""
        return math.hypot(x - self.x, y - self.y) - self.radius

    def distances(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """`distance` of many points at once."""
        return np.hypot(x - self.x, y - self.y) - self.radius

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the outline nearest to an outside point."""
        span = math.hypot(x - self.x, y - self.y)
        if span < 1e-9:
            return self.x + self.radius, self.y
        return self.x + (x - self.x) * self.radius / span, self.y + (y - self.y) * self.radius / span

    def ray(self, x: float, y: float, ux: float, uy: float) -> float:
        """Length along the ray (unit direction) to the first hit, inf when it misses, 0 from inside."""
        dx, dy = self.x - x, self.y - y
        along = dx * ux + dy * uy
        gap2 = dx * dx + dy * dy - self.radius * self.radius
        if gap2 <= 0.0:
            return 0.0
        discriminant = along * along - gap2
        if along <= 0.0 or discriminant < 0.0:
            return math.inf
        return along - math.sqrt(discriminant)

    def angular_extent(self, x: float, y: float) -> tuple[float, float]:
        """World direction of the centre and half the angle the shape fills, seen from an outside point."""
        span = max(math.hypot(self.x - x, self.y - y), self.radius + 1e-6)
        return math.atan2(self.y - y, self.x - x), math.asin(self.radius / span)


@dataclass(frozen=True, slots=True)
class Rect:
    """A filled rectangle with half sizes `hx`, `hy`, turned by `yaw`."""

    x: float
    y: float
    yaw: float
    hx: float
    hy: float

    @property
    def reach(self) -> float:
        """Radius of the smallest circle around the centre that holds the shape."""
        return math.hypot(self.hx, self.hy)

    def _local(self, x: float, y: float) -> tuple[float, float]:
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x - self.x, y - self.y
        return c * dx + s * dy, c * dy - s * dx

    def distance(self, x: float, y: float) -> float:
        """Signed distance of a point to the outline, negative inside."""
        lx, ly = self._local(x, y)
        qx, qy = abs(lx) - self.hx, abs(ly) - self.hy
        if qx <= 0.0 and qy <= 0.0:
            return max(qx, qy)
        return math.hypot(max(qx, 0.0), max(qy, 0.0))

    def distances(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """`distance` of many points at once."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x - self.x, y - self.y
        qx = np.abs(c * dx + s * dy) - self.hx
        qy = np.abs(c * dy - s * dx) - self.hy
        outside = np.hypot(np.maximum(qx, 0.0), np.maximum(qy, 0.0))
        return outside + np.minimum(np.maximum(qx, qy), 0.0)

    def nearest(self, x: float, y: float) -> tuple[float, float]:
        """The point of the outline nearest to an outside point."""
        lx, ly = self._local(x, y)
        lx = min(max(lx, -self.hx), self.hx)
        ly = min(max(ly, -self.hy), self.hy)
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        return self.x + c * lx - s * ly, self.y + s * lx + c * ly

    def ray(self, x: float, y: float, ux: float, uy: float) -> float:
        """Length along the ray (unit direction) to the first hit, inf when it misses, 0 from inside."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        lx, ly = self._local(x, y)
        near, far = 0.0, math.inf
        for origin, slope, half in ((lx, c * ux + s * uy, self.hx), (ly, c * uy - s * ux, self.hy)):
            if abs(slope) < 1e-12:
                if abs(origin) > half:
                    return math.inf
                continue
            t0, t1 = (-half - origin) / slope, (half - origin) / slope
            near, far = max(near, min(t0, t1)), min(far, max(t0, t1))
        return near if near <= far else math.inf

    def corners(self) -> tuple[tuple[float, float], ...]:
        """The four corners, counter-clockwise."""
        c, s = math.cos(self.yaw), math.sin(self.yaw)
        signs = ((1, 1), (-1, 1), (-1, -1), (1, -1))
        return tuple(
            (self.x + c * i * self.hx - s * j * self.hy, self.y + s * i * self.hx + c * j * self.hy)
            for i, j in signs
        )

    def angular_extent(self, x: float, y: float) -> tuple[float, float]:
        """World direction of the middle and half the angle the shape fills, seen from an outside point."""
        centre = math.atan2(self.y - y, self.x - x)
        offsets = [wrap_angle(math.atan2(cy - y, cx - x) - centre) for cx, cy in self.corners()]
        low, high = min(offsets), max(offsets)
        return wrap_angle(centre + 0.5 * (low + high)), 0.5 * (high - low)


Shape = Disc | Rect

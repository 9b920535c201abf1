# SPDX-License-Identifier: Apache-2.0
"""Faults of the simulated robot's sensors and base, switched on and off while it runs.

Sensor faults are injected between sensor and topic, where a broken driver would cause them. Base faults are injected
between the topic and the base.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from navsim.geometry import Pose2D, moved, movement, wrap_angle

NONE, STOPPED = "none", "stopped"
FROZEN, FROZEN_RESTAMPED, BLACK = "frozen", "frozen_restamped", "black"
JUMPING, NAN, MIRRORED, SCALED = "jumping", "nan", "mirrored", "scaled"
STUCK, REAR_BLOCKED, PUSHED = "stuck", "rear_blocked", "pushed"
CAMERA_FAULTS = (NONE, STOPPED, FROZEN, FROZEN_RESTAMPED, BLACK)
ODOM_FAULTS = (NONE, STOPPED, FROZEN, JUMPING, NAN, MIRRORED, SCALED)
BASE_FAULTS = (NONE, STUCK, REAR_BLOCKED, PUSHED)
JUMP_M = 2.0

Image = NDArray[np.uint8]
Stamp = tuple[int, int]  # seconds, nanoseconds


class BrokenCamera:
    """Remembers the picture that a frozen camera repeats. One per room."""

    def __init__(self) -> None:
        self._last: tuple[Image, Stamp] | None = None

    def take(self, fault: str, stamp: Stamp, render: Callable[[], Image]) -> tuple[Image, Stamp]:
        """Return the picture [H, W, 3] that the camera delivers, and its stamp."""
        if fault in (FROZEN, FROZEN_RESTAMPED) and self._last is not None:
            picture, taken = self._last
            return picture, taken if fault == FROZEN else stamp
        picture = render()
        self._last = picture, stamp
        return (np.zeros_like(picture) if fault == BLACK else picture), stamp


class BrokenOdometry:
    """Turns true poses into reported ones, with noise and faults. One per room."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(seed)
        self._true: Pose2D | None = None
        self._told: Pose2D | None = None
        self._count = 0

    def tell(self, true: Pose2D, fault: str, noise_m: float = 0.0, scale: float = 1.0) -> Pose2D:
        """Return the pose of the next message.

        noise_m: standard deviation of a coordinate, m; that of the yaw is half as many radians. `frozen` repeats the
        last pose exactly; `mirrored` reverses turns and sideways motion; `scaled` multiplies motion by `scale`.
        """
        self._count += 1
        before, self._true = self._true or true, true
        told = self._told or true
        if fault == NAN:
            return Pose2D(math.nan, math.nan, math.nan)
        if fault == FROZEN:
            self._true = before  # the missed motion is reported at once when the fault ends
            return told
        if fault in (MIRRORED, SCALED):
            told = _moved_on(told, before, true, fault, scale)
        else:
            told = _moved_on(told, before, true, NONE, 1.0)
        jump = JUMP_M if fault == JUMPING and self._count % 2 else 0.0
        self._told = told
        if not noise_m:
            return Pose2D(told.x + jump, told.y, told.yaw)
        gauss = self._rng.gauss
        x, y = told.x + jump + gauss(0.0, noise_m), told.y + gauss(0.0, noise_m)
        return Pose2D(x, y, wrap_angle(told.yaw + gauss(0.0, noise_m / 2)))


def _moved_on(told: Pose2D, before: Pose2D, after: Pose2D, fault: str, scale: float) -> Pose2D:
    """Return the reported pose after a true movement, which the fault changes."""
    ahead, aside, turned = movement(before, after)
    if fault == MIRRORED:
        turned, aside = -turned, -aside
    elif fault == SCALED:
        turned, ahead, aside = turned * scale, ahead * scale, aside * scale
    return moved(told, ahead, aside, turned)


class LateDriver:
    """A driver between velocity topic and base that may delay commands and drop zeros. Seconds."""

    def __init__(self) -> None:
        self._coming: deque[tuple[float, float, float]] = deque()

    def hear(self, vx: float, wz: float, now: float, delay: float = 0.0, drops_zeros: bool = False) -> None:
        """Record a received velocity."""
        if not (drops_zeros and vx == 0.0 and wz == 0.0):
            self._coming.append((now + delay, vx, wz))

    def due(self, now: float) -> list[tuple[float, float]]:
        """Return the velocities that have taken effect by now, oldest first."""
        found = []
        while self._coming and self._coming[0][0] <= now:
            found.append(self._coming.popleft()[1:])
        return found

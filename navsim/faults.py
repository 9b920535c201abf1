"""What can be wrong with the simulated robot's senses, switched on and off while it runs: pure functions.

Faults are injected where a broken driver would cause them, between the sense and the topic; the base is never touched.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from navsim.geometry import Pose2D

NONE, STOPPED = "none", "stopped"
FROZEN, FROZEN_RESTAMPED, BLACK = "frozen", "frozen_restamped", "black"
JUMPING, NAN = "jumping", "nan"
CAMERA_FAULTS = (NONE, STOPPED, FROZEN, FROZEN_RESTAMPED, BLACK)
ODOM_FAULTS = (NONE, STOPPED, JUMPING, NAN)
JUMP_M = 2.0

Image = NDArray[np.uint8]
Stamp = tuple[int, int]  # seconds, nanoseconds


class BrokenCamera:
    """Remembers the picture that a frozen camera repeats."""

    def __init__(self) -> None:
        self._last: tuple[Image, Stamp] | None = None

    def forget(self) -> None:
        """Another room: the picture of the old one is not repeated."""
        self._last = None

    def repeats(self, fault: str) -> bool:
        """Whether the next picture is the last one again, so that none has to be rendered."""
        return fault in (FROZEN, FROZEN_RESTAMPED) and self._last is not None

    def frozen(self, fault: str, stamp: Stamp) -> tuple[Image, Stamp]:
        """The last picture with the stamp it goes out with; only when it `repeats`."""
        assert self._last is not None
        picture, taken = self._last
        return picture, taken if fault == FROZEN else stamp

    def fresh(self, fault: str, picture: Image, stamp: Stamp) -> tuple[Image, Stamp]:
        """A rendered picture [H, W, 3] as the camera delivers it."""
        self._last = picture, stamp
        return (np.zeros_like(picture) if fault == BLACK else picture), stamp


def broken_pose(pose: Pose2D, fault: str, count: int) -> Pose2D:
    """The pose as a broken odometry tells it; `count` numbers the messages."""
    if fault == NAN:
        return Pose2D(math.nan, math.nan, math.nan)
    if fault == JUMPING and count % 2:
        return Pose2D(pose.x + JUMP_M, pose.y, pose.yaw)
    return pose

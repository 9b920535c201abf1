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
Decides whether the camera can be trusted, by receive times.

Frames must arrive, carry new stamps, and change when the robot moves. A driver that repeats its
last picture, with the old stamp or new ones, counts as silent.
"""

from __future__ import annotations

import math

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.geometry import Motion

# After a movement of this size the picture's bytes must have changed.
MOVED_M = 0.1
MOVED_RAD = 0.2
SAME_FRAMES = 3


class CameraWatch:
    """The newest trustworthy frame and its age."""

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.repeated = 0  # frames with the stamp of the previous one
        self.received = 0
        self._looks: bytes | object = b""
        self._sequence = -1  # of the motion under way
        self._moved = Motion()
        self._moved_at_change = Motion()
        self._same = 0  # frames in a row with the same bytes
        self._frozen = False

    def take(self, frame: Frame) -> bool:
        """Record a frame; returns whether it can be used (not repeated or frozen)."""
        self.received += 1
        if self.frame is not None and frame.stamp == self.frame.stamp and any(frame.stamp):
            self.repeated += 1
            return False
        if frame.picture != self._looks:
            self._looks = frame.picture
            self._moved_at_change, self._frozen, self._same = self._moved, False, 0
        else:
            self._same += 1
            # Only several equal frames after the movement count: cameras may be slow.
            self._frozen = self._frozen or (self._same >= SAME_FRAMES and self._has_moved)
            if self._frozen:
                return False
        self.frame = frame
        return True

    def robot_moved(self, sequence: int, done: Motion) -> None:
        """Record a motion's progress so far, by odometry."""
        if sequence != self._sequence:
            self._sequence, self._moved_at_change = sequence, Motion()
        self._moved = done

    @property
    def _has_moved(self) -> bool:
        """Whether the robot has moved since the picture last changed."""
        now, then = self._moved, self._moved_at_change
        turned = abs(now.angle_rad - then.angle_rad) > MOVED_RAD
        return turned or abs(now.distance_m - then.distance_m) > MOVED_M

    @property
    def is_frozen(self) -> bool:
        """Whether the picture has not changed although the robot has moved."""
        return self._frozen

    def age(self, now: float) -> float:
        """
        Return the seconds since the last trusted frame was received.

        Infinite before the first frame and while the picture is frozen.
        """
        if self.frame is None or self._frozen:
            return math.inf
        return now - self.frame.received

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
Turns and ways back: motions without a model, one after the other, each through the gate.

Told of poses and of the result of each motion; says the next one. Never moves backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import math
from typing import Protocol

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion, Pose, wrap
from spec_vlm_nav.missions.path import distance, THERE_M
from spec_vlm_nav.missions.record import Point

LONGEST_M, LARGEST_RAD = 0.6, math.radians(60)  # of one motion
TURNED_RAD = math.radians(4)
ASTRAY_RAD = math.radians(10)
MOST_FAILURES = 3  # motions in a row that came to nothing
AGAIN_S = 1.0
SILENT_S = 2.0  # nothing said of a motion
GOING_ON = (MotionState.MOVING, MotionState.SETTLING, MotionState.IDLE)
_CODES = {
    MotionState.STOPPED: ErrorCode.CANCELED,
    MotionState.EXPIRED: ErrorCode.TIMEOUT,
    MotionState.SUPERVISOR_LOST: ErrorCode.INTERNAL,
}


class DrivingCourse(Protocol):
    """What says the next motion from where the robot is."""

    def next(self, pose: Pose) -> Motion | None:
        """Return the next motion, None when it is done."""
        ...


class Turn:
    """A turn by this many radians, left positive; measured by odometry."""

    def __init__(self, angle_rad: float) -> None:
        self._left, self._yaw = angle_rad, math.nan

    def next(self, pose: Pose) -> Motion | None:
        """Return what is left, in parts."""
        if math.isfinite(self._yaw):
            self._left -= wrap(pose.yaw - self._yaw)
        self._yaw = pose.yaw
        if abs(self._left) < TURNED_RAD:
            return None
        return Motion(0.0, max(-LARGEST_RAD, min(LARGEST_RAD, self._left)))


class Route:
    """A way along corners: turn to the next one, drive there."""

    def __init__(self, corners: Sequence[Point]) -> None:
        self._corners = list(corners)

    def next(self, pose: Pose) -> Motion | None:
        """Return the next turn or the next stretch."""
        here = (pose.x, pose.y)
        while self._corners and distance(here, self._corners[0]) < THERE_M:
            del self._corners[0]
        if not self._corners:
            return None
        x, y = self._corners[0]
        aside = wrap(math.atan2(y - pose.y, x - pose.x) - pose.yaw)
        if abs(aside) > ASTRAY_RAD:
            return Motion(0.0, max(-LARGEST_RAD, min(LARGEST_RAD, aside)))
        return Motion(min(LONGEST_M, distance(here, (x, y))), 0.0)


def code_of(state: MotionState) -> ErrorCode:
    """Return the code of a step whose motion ended so."""
    if state in _CODES:
        return _CODES[state]
    return ErrorCode[state.name] if state.name in ErrorCode.__members__ else ErrorCode.INTERNAL


class Driver:
    """
    Carries out one course. `send` sends a motion and returns its sequence number.

    `done` is notified of the end, once: its code and a reason in words.
    """

    def __init__(
        self,
        course: DrivingCourse,
        send: Callable[[Motion], int],
        done: Callable[[ErrorCode, str], None],
        now: float,
    ) -> None:
        self._course, self._send, self._done = course, send, done
        self._sequence = 0  # of the motion under way; 0: none
        self._heard_at = self._again_at = now
        self._failures = 0
        self.is_over = False

    def tick(self, pose: Pose | None, now: float) -> None:
        """Send the next motion when it is its time. pose: None: not known."""
        if self.is_over or now < self._again_at:
            return
        if self._sequence:
            if now - self._heard_at > SILENT_S:
                self._end(ErrorCode.INTERNAL, "motion_node does not report on the motion")
            return
        if pose is None:
            if now - self._heard_at > SILENT_S:
                self._end(ErrorCode.STALE_ODOM, "no odometry")
            return
        motion = self._course.next(pose)
        if motion is None:
            self._end(ErrorCode.NONE, "")
            return
        self._heard_at = now
        self._sequence = self._send(motion)

    def on_status(self, sequence: int, state: MotionState, reason: str, now: float) -> None:
        """Take note of what motion_node says of a motion of ours."""
        if self.is_over or sequence != self._sequence or not sequence:
            return
        self._heard_at = now
        if state in GOING_ON:
            return
        self._sequence = 0
        if state is MotionState.REACHED:
            self._failures = 0
            return
        self._failures += 1
        if state in (MotionState.STOPPED, MotionState.ESTOPPED) or self._failures >= MOST_FAILURES:
            self._end(code_of(state), reason)
        else:
            self._again_at = now + AGAIN_S

    def _end(self, code: ErrorCode, reason: str) -> None:
        self.is_over = True
        self._done(code, reason)

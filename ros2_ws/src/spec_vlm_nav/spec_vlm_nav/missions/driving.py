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
Turns and ways back: sequences of motions without a model, each through the safety gate.

Inputs are poses and the results of motions; the output is the next motion. It never moves backward.
A way back is the driven path, reversed and simplified; metres, in the odometry frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import math
from typing import Protocol

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion, Pose, wrap
from spec_vlm_nav.common.status import GOING_ON
from spec_vlm_nav.missions.record import Point

LONGEST_M, LARGEST_RAD = 0.6, math.radians(60)  # limits of one motion
TURNED_RAD = math.radians(4)
ASTRAY_RAD = math.radians(10)
MOST_FAILURES = 3  # consecutive failed motions that end the course
AGAIN_S = 1.0  # pause before a retry
SILENT_S = 2.0  # silence about a motion that ends the course
_CODES = {
    MotionState.STOPPED: ErrorCode.CANCELED,
    MotionState.EXPIRED: ErrorCode.TIMEOUT,
    MotionState.SUPERVISOR_LOST: ErrorCode.INTERNAL,
}
MOST_POINTS = 4000
ASIDE_M = 0.08  # largest deviation of the way back from the driven path
JUMP_M, JUMP_RAD = 0.5, 1.0  # a larger step between two messages means that odometry was reset
THERE_M = 0.15  # a corner counts as reached within that


def grow(path: list[Point], point: Point, spacing_m: float) -> float:
    """
    Add a point if it is `spacing_m` from the last; returns the spacing for the next call.

    A path longer than MOST_POINTS keeps every second point, and its spacing doubles.
    """
    if path and math.dist(path[-1], point) < spacing_m:
        return spacing_m
    path.append(point)
    if len(path) <= MOST_POINTS:
        return spacing_m
    path[:] = path[::2]
    return spacing_m * 2


def nearest(path: Sequence[Point], point: Point) -> int:
    """Return the index of the path's point nearest to `point`; the last of equals."""
    return min(range(len(path)), key=lambda i: (round(math.dist(path[i], point), 3), -i))


def index_back(path: Sequence[Point], metres: float) -> int:
    """Return the index of the point `metres` back along a path; 0 if the path is shorter."""
    left = metres
    for i in range(len(path) - 1, 0, -1):
        left -= math.dist(path[i], path[i - 1])
        if left <= 0:
            return i - 1
    return 0


def straightened(path: Sequence[Point]) -> list[Point]:
    """Return the corners of a path (Douglas-Peucker), including its ends."""
    kept, waiting = {0, len(path) - 1}, [(0, len(path) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        asides = [_aside(path[i], path[first], path[last]) for i in range(first + 1, last)]
        worst = max(range(len(asides)), key=asides.__getitem__)
        if asides[worst] > ASIDE_M:
            middle = first + 1 + worst
            kept.add(middle)
            waiting += [(first, middle), (middle, last)]
    return [path[i] for i in sorted(kept)] if path else []


def way_back(path: Sequence[Point], to: int) -> list[Point]:
    """Return the corners of the way from the end of the path back to its point `to`."""
    return straightened(list(reversed(path[to:])))


def _aside(point: Point, a: Point, b: Point) -> float:
    """Return the distance of a point from the straight line between two others."""
    length = math.dist(a, b)
    if length < 1e-9:
        return math.dist(point, a)
    share = ((point[0] - a[0]) * (b[0] - a[0]) + (point[1] - a[1]) * (b[1] - a[1])) / length**2
    share = min(1.0, max(0.0, share))
    return math.dist(point, (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])))


def first_near(path: Sequence[Point], point: Point, within_m: float) -> int:
    """Return the first index within a distance of a point; the last index if there is none."""
    return next((i for i, p in enumerate(path) if math.dist(p, point) <= within_m), len(path) - 1)


class DrivingCourse(Protocol):
    """A course: it returns the next motion from the robot's pose."""

    def next(self, pose: Pose) -> Motion | None:
        """Return the next motion, or None at the end."""


class Turn:
    """A turn by an angle, rad, left positive; measured by odometry."""

    def __init__(self, angle_rad: float) -> None:
        self._left, self._yaw = angle_rad, math.nan

    def next(self, pose: Pose) -> Motion | None:
        """Return the next part of the remaining turn, or None at the end."""
        if math.isfinite(self._yaw):
            self._left -= wrap(pose.yaw - self._yaw)
        self._yaw = pose.yaw
        if abs(self._left) < TURNED_RAD:
            return None
        return Motion(0.0, max(-LARGEST_RAD, min(LARGEST_RAD, self._left)))


class Route:
    """A route along corners: turn towards the next one, drive there."""

    def __init__(self, corners: Sequence[Point]) -> None:
        self._corners = list(corners)

    def next(self, pose: Pose) -> Motion | None:
        """Return the next turn or drive, or None at the end."""
        here = (pose.x, pose.y)
        while self._corners and math.dist(here, self._corners[0]) < THERE_M:
            del self._corners[0]
        if not self._corners:
            return None
        x, y = self._corners[0]
        aside = wrap(math.atan2(y - pose.y, x - pose.x) - pose.yaw)
        if abs(aside) > ASTRAY_RAD:
            return Motion(0.0, max(-LARGEST_RAD, min(LARGEST_RAD, aside)))
        return Motion(min(LONGEST_M, math.dist(here, (x, y))), 0.0)


def code_of(state: MotionState) -> ErrorCode:
    """Return the step's result code for a motion that ended in this state."""
    if state in _CODES:
        return _CODES[state]
    return ErrorCode[state.name] if state.name in ErrorCode.__members__ else ErrorCode.INTERNAL


class Driver:
    """
    Carries out one course.

    send: sends a motion and returns its sequence number. done: called once at the end with a code
    and a reason.
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
        """Send the next motion when it is due; pose: None if unknown."""
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
        """Handle a report of motion_node about a motion of this course."""
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

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
The instruction under way: its text, limits and progress, and the report of its end.

An obstruction is a motion that ended at an obstacle, was refused, or got no response. All kinds
count together; only measured progress resets the count.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import NavigationResult

PROGRESS_M = 0.4  # distance from the first obstruction that counts as progress
HELD_FOR_S = 4.0  # how long a latched stop may refuse motions before the instruction ends

CODE_OF: dict[MotionState, ErrorCode] = {
    MotionState.BLOCKED: ErrorCode.BLOCKED,
    MotionState.COLLISION_AHEAD: ErrorCode.COLLISION_AHEAD,
    MotionState.NO_RESPONSE: ErrorCode.NO_RESPONSE,
    MotionState.WRONG_RESPONSE: ErrorCode.WRONG_RESPONSE,
    MotionState.UNCOMMANDED_MOTION: ErrorCode.UNCOMMANDED_MOTION,
    MotionState.GEOFENCE: ErrorCode.GEOFENCE,
    MotionState.REFUSED: ErrorCode.REFUSED,
    MotionState.EXPIRED: ErrorCode.BLOCKED,
}
"""Result code of an instruction that ends because of obstructions of this kind."""


class Odometer:
    """Position and travelled distance, summed from the motions' reported progress."""

    def __init__(self) -> None:
        self.place = Pose(0.0, 0.0, 0.0)  # relative to the start of the instruction
        self.distance_m = 0.0
        self._sequence = -1
        self._done = Motion()

    def restart(self) -> None:
        """Reset both for a new instruction."""
        self.place, self.distance_m = Pose(0.0, 0.0, 0.0), 0.0

    def hear(self, sequence: int, done: Motion) -> None:
        """Add the progress of a motion; done: covered so far by the motion `sequence`."""
        if sequence != self._sequence:
            self._sequence, self._done = sequence, Motion()
        ahead = done.distance_m - self._done.distance_m
        turned = done.angle_rad - self._done.angle_rad
        if not (math.isfinite(ahead) and math.isfinite(turned)):
            return
        self._done = done
        here, heading = self.place, self.place.yaw + turned / 2
        self.place = Pose(
            here.x + ahead * math.cos(heading),
            here.y + ahead * math.sin(heading),
            here.yaw + turned,
        )
        self.distance_m += abs(ahead)


@dataclass
class Obstructions:
    """Consecutive obstructions without progress in between."""

    count: int = 0
    first: Pose | None = None
    held_since: float = math.inf

    def restart(self) -> None:
        """Forget them."""
        self.count, self.first, self.held_since = 0, None, math.inf

    def add(self, place: Pose, is_held: bool = False, now: float = 0.0) -> int:
        """
        Count one more; returns the new count.

        is_held: every motion would be refused until an operator acts.
        """
        self.count += 1
        self.first = self.first or place
        self.held_since = min(self.held_since, now) if is_held else math.inf
        return self.count

    def are_final(self, allowed: int, now: float) -> bool:
        """Return whether there are `allowed` of them or the robot was held for HELD_FOR_S."""
        return self.count >= allowed or now - self.held_since > HELD_FOR_S

    def progressed(self, place: Pose) -> None:
        """Reset the count if `place` is at least PROGRESS_M from the first obstruction."""
        if self.first is not None and place.distance(self.first) >= PROGRESS_M:
            self.restart()


def is_obstruction(status: Status, asked: Motion) -> bool:
    """Return whether a motion ended obstructed; asked: the motion that was commanded."""
    if status.state is MotionState.EXPIRED:
        return fell_short(status.done, asked)
    return status.state in CODE_OF


def fell_short(done: Motion, asked: Motion) -> bool:
    """Return whether less than half of a motion was covered."""
    if asked.distance_m:
        return done.distance_m / asked.distance_m < 0.5
    return bool(asked.angle_rad) and done.angle_rad / asked.angle_rad < 0.5


@dataclass
class Instruction:
    """One instruction being carried out. `number` counts all instructions, refused ones too."""

    number: int
    words: str
    began: float
    ends_at: float = math.inf
    hint: str = ""
    stamp: float = math.inf  # when it was given, s, by the clock of motion_node's stamps
    decisions: int = 0
    motions: int = 0
    refused_since: float = math.inf  # since when motion_node has carried out no motion, s

    def refused_for(self, now: float) -> float:
        """Record that a motion was not carried out; returns for how long none has been, s."""
        self.refused_since = min(self.refused_since, now)
        return now - self.refused_since


class CurrentInstruction:
    """
    The instruction under way or, when none is, the last one.

    `number` is the number of the newest instruction, including refused ones.
    """

    def __init__(self) -> None:
        self.number = 0
        self.given = Instruction(0, "", -math.inf)
        self.odometer = Odometer()
        self.obstructions = Obstructions()

    def begin(self, given: Instruction) -> None:
        """Replace the old instruction."""
        self.given = given
        self.odometer.restart()
        self.obstructions.restart()

    def result(self, code: ErrorCode, message: str, reasoning: str, now: float) -> NavigationResult:
        """Return the result to report; reasoning: the last one, searched for the hint."""
        given = self.given
        return NavigationResult(
            given.number,
            code,
            message,
            given.decisions,
            given.motions,
            now - given.began,
            code is ErrorCode.NONE and given.hint.lower() in reasoning.lower(),
            self.odometer.distance_m,
            given.words,
        )

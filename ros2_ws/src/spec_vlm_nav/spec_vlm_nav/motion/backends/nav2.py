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
An Executor that carries out motions by Nav2's behaviours DriveOnHeading and Spin.

It sends one goal per motion and reads its result. The gate still decides whether a motion may go
on; Nav2 controls the wheels. Whatever ends a motion here cancels its goal first. No call blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math
from typing import Protocol

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION, Pose, Velocity, ZERO
from spec_vlm_nav.motion.executor import Executor, Settling

ANSWER_S = 1.0  # time for the server to accept or reject a goal; after that it counts as gone


class GoalState(enum.Enum):
    """State of a goal."""

    SENT = "sent"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SUCCEEDED = "succeeded"
    ABORTED = "aborted"
    CANCELED = "canceled"


@dataclass(frozen=True)
class GoalReport:
    """
    A goal's state and, if it was aborted, the reason.

    error: the name of Nav2's error, or "". message: Nav2's text.
    """

    state: GoalState
    error: str = ""
    message: str = ""


class Goals(Protocol):
    """The action clients: one goal at a time."""

    def send(self, motion: Motion, speed: float, allowance_s: float) -> str:
        """Send a goal; returns "" or why it cannot be sent. speed: m/s or rad/s, positive."""

    def cancel(self) -> None:
        """Cancel the latest goal unless it is over; may be called again."""

    def report(self) -> GoalReport:
        """Return the state of the latest goal."""


class Nav2Executor(Executor):
    """Carries out motions by Nav2 goals; its own velocities are zero."""

    sends_velocities = False

    def __init__(self, goals: Goals) -> None:
        super().__init__()
        self._goals = goals

    def start(self, motion: Motion, pose: Pose, now: float, allowance_s: float = math.inf) -> None:
        """Send a motion's goal; a goal under way is canceled first."""
        self.cancel()
        super().start(motion, pose, now, allowance_s)
        self._speed = self.config.angular_speed if motion.angle_rad else self.config.linear_speed
        self._unsent = self._goals.send(motion, self._speed, allowance_s)

    def cancel(self) -> None:
        """Cancel the goal under way."""
        if self._motion is not None:
            self._motion = None
            self._goals.cancel()

    def update(self, pose: Pose, now: float, in_flight: Motion = NO_MOTION) -> tuple[Velocity, MotionState]:
        """Return zero velocity and the motion's progress; a final state ends the motion."""
        if self._motion is None or self._track is None:
            return ZERO, MotionState.REACHED
        self._track.follow(pose)
        if self._settling is not None:
            over = self._settling.is_over(pose, now)
            return self._finish(MotionState.REACHED) if over else (ZERO, MotionState.SETTLING)
        if self._unsent:
            return self._finish(MotionState.REFUSED, self._unsent)
        if self._motion.distance_m and self._speed > self.config.linear_speed:  # Spin has no speed field
            self._goals.cancel()
            return self._finish(MotionState.EXPIRED, "the limit of its speed was lowered")
        report = self._goals.report()
        if report.state is GoalState.ACCEPTED:
            return ZERO, MotionState.MOVING
        if report.state is GoalState.SENT:
            if now - self._started <= ANSWER_S:
                return ZERO, MotionState.MOVING
            self._goals.cancel()
            return self._finish(MotionState.REFUSED, f"Nav2 has not answered within {ANSWER_S:g} s")
        if report.state is GoalState.SUCCEEDED:
            self._settling = Settling(pose, now, self.config)
            return ZERO, MotionState.SETTLING
        return self._finish(*_failure(report))


def _failure(report: GoalReport) -> tuple[MotionState, str]:
    """Return the final state of a motion whose goal did not succeed, and the reason."""
    if report.state is GoalState.REJECTED:
        return MotionState.REFUSED, "Nav2 rejected the goal"
    if report.state is GoalState.CANCELED:
        return MotionState.REFUSED, "another client canceled the goal in Nav2"
    told = f": {report.message}" if report.message else ""
    if report.error == "COLLISION_AHEAD":
        return MotionState.COLLISION_AHEAD, f"Nav2 sees an obstacle ahead{told}"
    if report.error == "TIMEOUT":
        return MotionState.EXPIRED, f"Nav2 did not reach it in time{told}"
    if report.error:
        return MotionState.REFUSED, f"Nav2 gave up with {report.error}{told}"
    # Humble reports no reason; most often its own collision check failed.
    return MotionState.BLOCKED, f"Nav2 gave up{told}"

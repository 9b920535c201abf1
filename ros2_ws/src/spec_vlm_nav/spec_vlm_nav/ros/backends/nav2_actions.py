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
Action clients for Nav2's DriveOnHeading and Spin, for the nav2_msgs of any distribution.

The client chooses the goal ids, so that a goal can be canceled before the server has answered.
Fields that exist only in newer distributions keep their defaults (goals) or are read if present
(results).
"""

from __future__ import annotations

import math
import time
from typing import Any
import uuid

from action_msgs.srv import CancelGoal
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.task import Future
from spec_vlm_nav.common.errors import BackendError
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.motion.backends.nav2 import GoalReport, GoalState

DRIVE, SPIN = "drive_on_heading", "spin"
ERRORS = ("TIMEOUT", "TF_ERROR", "COLLISION_AHEAD", "INVALID_INPUT", "UNKNOWN")
# action_msgs/GoalStatus
SUCCEEDED, CANCELED = 4, 5
AGAIN_S = 0.1  # between two requests to cancel the same goal
# a server that has not ended a goal this long after its time allowance counts as gone
LINGERS_S = 1.0


def error_name(result: Any) -> str:
    """
    Return the name of the error in an action's result.

    It is "" if there is no error or the distribution reports none.
    """
    code = getattr(result, "error_code", 0)
    if not code:
        return ""
    return next((name for name in ERRORS if getattr(type(result), name, None) == code), f"error {code}")


class _Goal:
    """One goal from sending to its end; sends its own cancel requests."""

    def __init__(self, client: ActionClient, canceler: Any, goal: Any, allowance_s: float) -> None:
        self.report = GoalReport(GoalState.SENT)
        self._canceler, self._cancel_wanted, self._asked_at = canceler, False, 0.0
        self._over_by = time.monotonic() + allowance_s + LINGERS_S
        self._cancel_request = CancelGoal.Request()
        identity = self._cancel_request.goal_info.goal_id
        identity.uuid = list(uuid.uuid4().bytes)
        client.send_goal_async(goal, goal_uuid=identity).add_done_callback(self._answered)

    @property
    def is_over(self) -> bool:
        """Whether the goal has a final state."""
        return self.report.state not in (GoalState.SENT, GoalState.ACCEPTED)

    @property
    def lingers(self) -> bool:
        """Whether a cancel was requested and the goal may still drive the robot."""
        return self._cancel_wanted and not self.is_over and time.monotonic() < self._over_by

    def cancel(self) -> None:
        """Ask the server to cancel it."""
        self._cancel_wanted, self._asked_at = True, time.monotonic()
        if not self.is_over:
            self._canceler.call_async(self._cancel_request)

    def cancel_again(self) -> None:
        """Ask once more if the last request is at least AGAIN_S old."""
        if time.monotonic() - self._asked_at >= AGAIN_S:
            self.cancel()

    def _answered(self, future: Future) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.report = GoalReport(GoalState.REJECTED)
            return
        self.report = GoalReport(GoalState.ACCEPTED)
        if self._cancel_wanted:  # requested before the server knew the goal
            self.cancel()
        handle.get_result_async().add_done_callback(self._ended)

    def _ended(self, future: Future) -> None:
        answer: Any = future.result()
        if answer.status == SUCCEEDED:
            self.report = GoalReport(GoalState.SUCCEEDED)
        elif answer.status == CANCELED:
            self.report = GoalReport(GoalState.CANCELED)
        else:
            message = str(getattr(answer.result, "error_msg", ""))
            self.report = GoalReport(GoalState.ABORTED, error_name(answer.result), message)


class Nav2Goals:
    """The two action clients. Raises BackendError when nav2_msgs is missing."""

    def __init__(self, node: Node) -> None:
        try:
            from nav2_msgs.action import DriveOnHeading, Spin
        except ImportError as error:
            raise BackendError(
                "motion_backend nav2 needs the ROS package nav2_msgs: sudo apt-get install "
                f"ros-$ROS_DISTRO-nav2-msgs, and source the installation ({error})"
            ) from error
        self._kinds = {DRIVE: DriveOnHeading, SPIN: Spin}
        self._clients: dict[str, Any] = {
            name: ActionClient(node, kind, name) for name, kind in self._kinds.items()
        }
        self._cancelers: dict[str, Any] = {
            name: node.create_client(CancelGoal, f"{name}/_action/cancel_goal") for name in self._kinds
        }
        self._goal: _Goal | None = None

    def send(self, motion: Motion, speed: float, allowance_s: float) -> str:
        """
        Send a goal; returns "" or why it cannot be sent.

        speed: m/s, positive; Spin uses Nav2's configured speed.
        """
        name = SPIN if motion.angle_rad else DRIVE
        if self._goal is not None and self._goal.lingers:
            return "the previous goal was canceled and has not ended in Nav2 yet"
        self._goal = None
        if not self._clients[name].server_is_ready():
            return f"Nav2's action server {name} is not there: is behavior_server active?"
        goal = self._kinds[name].Goal()
        goal.time_allowance.sec = int(allowance_s)
        goal.time_allowance.nanosec = int(allowance_s % 1 * 1e9)
        if motion.angle_rad:
            goal.target_yaw = motion.angle_rad
        else:
            goal.target.x = motion.distance_m
            goal.speed = math.copysign(speed, motion.distance_m)
        self._goal = _Goal(self._clients[name], self._cancelers[name], goal, allowance_s)
        return ""

    def cancel(self) -> None:
        """Cancel the latest goal unless it is over; may be called again."""
        if self._goal is not None:
            self._goal.cancel()

    def insist(self) -> bool:
        """Repeat the cancel request of a goal that still lingers; returns whether one does."""
        if self._goal is None or not self._goal.lingers:
            return False
        self._goal.cancel_again()
        return True

    def report(self) -> GoalReport:
        """Return the state of the latest goal."""
        return self._goal.report if self._goal is not None else GoalReport(GoalState.REJECTED)

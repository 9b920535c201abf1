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

"""Sends a mission's instructions as goals of NavigateInstruction, one at a time."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.node import Node
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.missions.plan import MissionStep
from spec_vlm_nav.ros.messages import duration_of
from spec_vlm_nav_interfaces.action import NavigateInstruction

Done = Callable[[ErrorCode, str, int], None]
ACCEPT_S = 5.0  # silence of a goal counts from its acceptance, or this long after it was sent
LOST = "vlm_nav_node does not know the instruction any more: was it restarted?"


class Instructor:
    """Sends an instruction and reports how it ended: code, message, decisions."""

    def __init__(self, node: Node) -> None:
        self._client: Any = ActionClient(node, NavigateInstruction, "navigate_instruction")
        self._number = 0  # number of the current goal; results of others are ignored
        self._handle: Any = None
        self._silent_from: float | None = None  # since when silence counts; None: no goal is under way
        self.feedback: NavigateInstruction.Feedback | None = None

    @property
    def is_there(self) -> bool:
        """Whether an action server is ready."""
        return bool(self._client.server_is_ready())

    def silent_s(self, now: float) -> float:
        """
        Return how long nothing was heard of the instruction under way, s; 0 if there is none.

        A server that was restarted is there, but its goals are gone, and their results never come.
        """
        return 0.0 if self._silent_from is None else max(0.0, now - self._silent_from)

    def give(self, step: MissionStep, done: Done) -> None:
        """Send an instruction; it replaces the previous one."""
        self.drop()
        number, self._silent_from = self._number, time.monotonic() + ACCEPT_S
        goal = NavigateInstruction.Goal(instruction=step.words, success_hint=step.hint)
        goal.time_allowance = duration_of(step.max_s)

        def on_feedback(message: Any) -> None:
            if number == self._number:
                self.feedback, self._silent_from = message.feedback, time.monotonic()

        def on_accepted(future: Any) -> None:
            handle = future.result()
            if number != self._number:  # dropped meanwhile
                handle.cancel_goal_async()
                return
            self._handle, self._silent_from = handle, time.monotonic()
            handle.get_result_async().add_done_callback(on_result)

        def on_result(future: Any) -> None:
            if number != self._number:
                return
            self._handle = self._silent_from = None
            if future.result().status == GoalStatus.STATUS_UNKNOWN:  # its result is empty
                done(ErrorCode.INTERNAL, LOST, 0)
                return
            result = future.result().result
            code, message = ErrorCode(result.error_code), result.error_msg
            if code is ErrorCode.NONE and step.hint and not result.hint_met:
                message = f'the last reasoning does not contain "{step.hint}"'
            done(code, message, int(result.decisions))

        sent = self._client.send_goal_async(goal, feedback_callback=on_feedback)
        sent.add_done_callback(on_accepted)

    def drop(self) -> None:
        """Cancel the goal under way without waiting for its result."""
        self._number += 1
        self.feedback = self._silent_from = None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel_goal_async()

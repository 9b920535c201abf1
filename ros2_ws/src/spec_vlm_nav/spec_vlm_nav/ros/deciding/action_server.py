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
The action server of NavigateInstruction: goals become instructions of the navigator.

No callback blocks the executor, and no coroutine outlives a stop. The navigator carries out the
goal, and the server returns the result when the instruction ends.
"""

from __future__ import annotations

from rclpy.action import CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.parts.interfaces import NavigationResult, NavigatorPhase
from spec_vlm_nav.ros.basics import DeferringServer
from spec_vlm_nav.ros.deciding.active import ActiveNavigator
from spec_vlm_nav.ros.messages import duration_of, seconds_of
from spec_vlm_nav_interfaces.action import NavigateInstruction

NAME = "navigate_instruction"
FEEDBACK_TICKS = 4  # 5 Hz
_PHASES = {
    NavigatorPhase.LOOKING: NavigateInstruction.Feedback.LOOKING,
    NavigatorPhase.THINKING: NavigateInstruction.Feedback.THINKING,
    NavigatorPhase.MOVING: NavigateInstruction.Feedback.MOVING,
}


def message_of(result: NavigationResult) -> NavigateInstruction.Result:
    """Return a result as a message."""
    message = NavigateInstruction.Result(error_code=result.code.value, error_msg=result.message)
    message.total_elapsed_time = duration_of(result.elapsed_s)
    message.distance_m, message.hint_met = result.distance_m, result.hint_met
    message.decisions, message.motions = result.decisions, result.motions
    return message


class NavigateServer:
    """
    Serves one goal at a time; a newer goal replaces it.

    `deciding` is None while the node is not active.
    """

    def __init__(self, node: Node) -> None:
        self.deciding: ActiveNavigator | None = None
        self._node = node
        self._goals: dict[int, ServerGoalHandle] = {}  # by the number of the instruction
        self._results: dict[int, NavigationResult] = {}
        self._canceling: set[int] = set()
        self._ticks = 0
        # A separate callback group: a cancel waits for motion_node's report, which must be
        # received meanwhile.
        self._server = DeferringServer(
            node,
            NavigateInstruction,
            NAME,
            self._begin,
            goal_callback=self._on_goal,
            cancel_callback=self._on_cancel,
            callback_group=MutuallyExclusiveCallbackGroup(),
        )

    @property
    def is_busy(self) -> bool:
        """Whether a goal waits for its result."""
        return bool(self._goals)

    async def _on_goal(self, request: NavigateInstruction.Goal) -> GoalResponse:
        """
        Accept every goal, after stopping the robot.

        No goal is rejected, so that the result can tell the client what is wrong.
        """
        if self.deciding is not None and self.deciding.is_busy:
            await self.deciding.stop("another instruction arrived")
        return GoalResponse.ACCEPT

    def _begin(self, goal: ServerGoalHandle) -> None:
        request = goal.request
        if self.deciding is None:
            name = self._node.get_fully_qualified_name()
            words = f"the node is not active: ros2 lifecycle set {name} activate"
            self._finish(goal, NavigationResult(0, ErrorCode.INVALID_INPUT, words))
            return
        allowance, before = seconds_of(request.time_allowance), self.deciding.navigator.instruction.number
        number = self.deciding.instruct(request.instruction, allowance, request.success_hint)
        if number == before:  # it meant stop
            self._finish(goal, NavigationResult(0, ErrorCode.NONE, "stopped"))
            return
        self._goals[number] = goal
        self.tick()

    async def _on_cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        """Stop the robot before acknowledging the cancel."""
        number = next((n for n, g in self._goals.items() if g == goal), None)
        if number is None or number in self._results or self.deciding is None:
            return CancelResponse.REJECT
        self._canceling.add(number)
        await self.deciding.stop("canceled")
        # The task runs after rclpy has marked the goal as canceling; the node may have been
        # deactivated meanwhile.
        if self._node.executor is not None:
            self._node.executor.create_task(self.tick)
        return CancelResponse.ACCEPT

    def on_result(self, result: NavigationResult) -> None:
        """Record the result of an instruction."""
        self._results[result.instruction] = result
        self.tick()

    def tick(self) -> None:
        """Return results that are due, and publish feedback every FEEDBACK_TICKS."""
        for number, goal in list(self._goals.items()):
            waits = number in self._canceling and not goal.is_cancel_requested
            if number in self._results and not waits:
                del self._goals[number]
                self._canceling.discard(number)
                self._finish(goal, self._results[number])
        # A goal may be registered after its result arrived: keep the newest result.
        self._results = {
            n: o for n, o in self._results.items() if n in self._goals or n == max(self._results)
        }
        self._ticks += 1
        if self._ticks % FEEDBACK_TICKS == 0:
            for goal in self._goals.values():
                self._feed_back(goal)

    def _finish(self, goal: ServerGoalHandle, result: NavigationResult) -> None:
        self._server.finish(goal, message_of(result))

    def _feed_back(self, goal: ServerGoalHandle) -> None:
        if self.deciding is None or not self.deciding.is_busy:
            return
        told, link = self.deciding.navigator.told, self.deciding.link
        feedback = NavigateInstruction.Feedback(phase=_PHASES[told.phase], action=told.action)
        feedback.reasoning = self.deciding.text_so_far or told.reasoning
        feedback.unverified, feedback.decision_ms = told.unverified, told.decision_ms
        feedback.distance_left_m = told.left.distance_m
        feedback.angle_left_rad = told.left.angle_rad
        feedback.decisions = told.decisions
        feedback.link = link.state.value
        feedback.link_rtt_ms = link.rtt_ms
        goal.publish_feedback(feedback)

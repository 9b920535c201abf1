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

"""The action server of RunMission and the service ChangeMission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.action import CancelResponse, GoalResponse
from rclpy.node import Node
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import MissionError
from spec_vlm_nav.missions.record import MissionPhase, MissionRecord, results, results_json
from spec_vlm_nav.ros.deferring import DeferringServer
from spec_vlm_nav.ros.messages import duration_of
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.srv import ChangeMission

NAME = "run_mission"


class MissionServer:
    """Serves one goal at a time; a second goal ends at once with the reason."""

    def __init__(
        self,
        node: Node,
        begin: Callable[[str], None],
        cancel: Callable[[str], None],
        change: Callable[[ChangeMission.Request], str],
        record: Callable[[], MissionRecord | None],
    ) -> None:
        """begin, change: raise MissionError. change: returns a confirmation."""
        self._begin_mission, self._cancel, self._change = begin, cancel, change
        self._record = record
        self._goal: Any = None
        self._server = DeferringServer(
            node,
            RunMission,
            NAME,
            self._begin,
            goal_callback=lambda request: GoalResponse.ACCEPT,
            cancel_callback=self._on_cancel,
        )
        node.create_service(ChangeMission, "~/change", self._on_change)

    def _begin(self, goal: Any) -> None:
        self.tick()  # the previous mission may have ended since the last tick: its client waits
        try:
            self._begin_mission(goal.request.mission)
        except MissionError as error:
            refused = RunMission.Result(error_code=ErrorCode.INVALID_INPUT.value)
            refused.error_msg = str(error)
            self._server.finish(goal, refused)
            return
        self._goal = goal
        self.tick()

    def _on_cancel(self, goal: Any) -> CancelResponse:
        if goal != self._goal:
            return CancelResponse.REJECT
        self._cancel("canceled by a client")
        return CancelResponse.ACCEPT

    def tick(self) -> None:
        """Publish feedback, or return the result if the mission has ended."""
        record, goal = self._record(), self._goal
        if record is None or goal is None:
            return
        if record.phase is not MissionPhase.ENDED:
            goal.publish_feedback(_feedback(record))
            return
        self._goal = None
        self._server.finish(goal, result_of(record))

    def _on_change(
        self, request: ChangeMission.Request, response: ChangeMission.Response
    ) -> ChangeMission.Response:
        try:
            response.message, response.success = self._change(request), True
        except MissionError as error:
            response.message = str(error)
        record = self._record()
        response.results = results_json(record) if record is not None else ""
        return response


def result_of(record: MissionRecord) -> RunMission.Result:
    """Return a mission's result as a message."""
    told = results(record)
    message = RunMission.Result(error_code=ErrorCode[record.code].value, error_msg=record.why)
    message.total_elapsed_time = duration_of(record.elapsed_s)
    message.distance_m = record.distance_m
    message.steps_done, message.steps_failed = told["done"], told["failed"]
    message.steps_skipped, message.results = told["skipped"], results_json(record)
    return message


def _feedback(record: MissionRecord) -> RunMission.Feedback:
    message = RunMission.Feedback(phase=record.phase.value, why=record.why)
    message.steps = len(record.items)
    message.steps_over = sum(item.is_over for item in record.items)
    if (item := record.current) is not None:
        message.step, message.doing = item.number, item.step.shown
    return message

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
One robot as the console speaks to it: orders of an operator, and the live parameters.

Nothing else is published by the console. Called by the web server's thread; the answers come in
ROS's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.console.live import LIVE, live_rows
from spec_vlm_nav.motion.presence import OPERATOR
from spec_vlm_nav.ros.throttled_executor import ThrottledExecutor
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.msg import Presence
from spec_vlm_nav_interfaces.srv import ChangeMission
from std_msgs.msg import Bool, Empty, String

RELIABLE = QoSProfile(depth=20, reliability=ReliabilityPolicy.RELIABLE)
Answer = Callable[[bool, str], None]


class CommandPublisher:
    """Of the robot whose topics begin with `at`."""

    def __init__(self, node: Node, at: str, group: ThrottledExecutor) -> None:
        self._group = group
        self._parameters: dict[str, Any] = {}
        self._instruct = node.create_publisher(
            String, f"{at}instruction", RELIABLE, callback_group=group
        )
        self._stop = node.create_publisher(Empty, f"{at}stop", RELIABLE, callback_group=group)
        self._estop = node.create_publisher(Bool, f"{at}e_stop", RELIABLE, callback_group=group)
        self._reset = node.create_publisher(
            Empty, f"{at}e_stop_reset", RELIABLE, callback_group=group
        )
        self._cancel = node.create_publisher(
            Empty, f"{at}vlm_nav_node/cancel", RELIABLE, callback_group=group
        )
        self._presence = node.create_publisher(
            Presence, f"{at}presence", RELIABLE, callback_group=group
        )
        self._missions: Any = ActionClient(node, RunMission, f"{at}run_mission")
        self._change: Any = node.create_client(
            ChangeMission, f"{at}mission_node/change", callback_group=group
        )
        self._set: dict[str, Any] = {}
        self._get: dict[str, Any] = {}
        for each in LIVE:
            self._set[each] = node.create_client(
                SetParameters, f"{at}{each}/set_parameters", callback_group=group
            )
            self._get[each] = node.create_client(
                GetParameters, f"{at}{each}/get_parameters", callback_group=group
            )

    # -- orders

    def stop(self) -> None:
        """Stop."""
        self._stop.publish(Empty())

    def estop(self) -> None:
        """Latch the emergency stop."""
        self._estop.publish(Bool(data=True))

    def reset(self) -> None:
        """Take the emergency stop back."""
        self._reset.publish(Empty())

    def instruct(self, words: str) -> None:
        """Begin an instruction."""
        self._instruct.publish(String(data=words))

    def cancel(self) -> None:
        """Cancel the instruction."""
        self._cancel.publish(Empty())

    def hold(self, holder: str, holds: bool) -> None:
        """Say that an operator has control, or has let go (dead man)."""
        self._presence.publish(Presence(holder=holder, kind=OPERATOR, holds=holds))

    def run_mission(self, text: str, answer: Answer) -> None:
        """Begin a mission. answer: called with whether it was taken, and how it ended."""
        if not self._missions.server_is_ready():
            answer(False, "no mission_node is heard: start one (mission:=true)")
            return

        def on_result(future: Any) -> None:
            result = future.result().result
            answer(result.error_code == 0, result.error_msg or "mission done")

        def on_accepted(future: Any) -> None:
            future.result().get_result_async().add_done_callback(on_result)

        sent = self._missions.send_goal_async(RunMission.Goal(mission=text))
        sent.add_done_callback(on_accepted)

    def change_mission(
        self, order: str, step: int, place: int, steps: str, answer: Answer
    ) -> None:
        """Give an order about the mission under way."""
        if not self._change.service_is_ready():
            answer(False, "no mission_node is heard")
            return
        request = ChangeMission.Request(order=order, step=step, place=place, steps=steps)

        def done(future: Any) -> None:
            answer(future.result().success, future.result().message)

        self._group.expect()
        self._change.call_async(request).add_done_callback(done)

    # -- live parameters

    def parameters(self) -> list[dict[str, Any]]:
        """Return the live parameters with their ranges and what is known of their values."""
        return live_rows(self._parameters)

    def ask_parameters(self) -> None:
        """Have the values reported by the nodes."""
        for node, names in LIVE.items():
            client = self._get[node]
            if client.service_is_ready():

                def done(future: Any, node: str = node, names: tuple[str, ...] = names) -> None:
                    for name, value in zip(names, future.result().values, strict=False):
                        message = ParameterMessage(name=name, value=value)
                        found = RosParameter.from_parameter_msg(message).value
                        self._parameters[f"{node}/{name}"] = found

                self._group.expect()
                request = GetParameters.Request(names=list(names))
                client.call_async(request).add_done_callback(done)

    def set_parameter(self, node: str, name: str, value: Value, answer: Answer) -> None:
        """Set a live parameter."""
        client = self._set.get(node)
        if client is None or name not in LIVE[node]:
            answer(False, f"{node} {name} is not a live parameter")
            return
        if not client.service_is_ready():
            answer(False, f"{node} is not heard")
            return
        request = SetParameters.Request()
        request.parameters = [RosParameter(name, value=value).to_parameter_msg()]

        def done(future: Any) -> None:
            result = future.result().results[0]
            if result.successful:
                self._parameters[f"{node}/{name}"] = value
            answer(result.successful, result.reason or f"{name} = {value}")

        self._group.expect()
        client.call_async(request).add_done_callback(done)

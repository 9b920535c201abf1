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
The console's outputs to one robot: operator commands, live parameters, and its simulator.

The console publishes nothing else. The web server's thread calls these methods; answers arrive in
the ROS thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
import json
from typing import Any

from action_msgs.msg import GoalStatus
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters, SetParameters
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.console.parameters import LIVE, live_rows
from spec_vlm_nav.console.robots import Answer
from spec_vlm_nav.motion.watchdogs import OPERATOR
from spec_vlm_nav.ros.basics import RELIABLE
from spec_vlm_nav.ros.subscriptions import ThrottledExecutor
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.msg import Presence
from spec_vlm_nav_interfaces.srv import ChangeMission
from std_msgs.msg import Bool, Empty, String

try:
    from rclpy.event_handler import PublisherEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks

SPLIT = "heldout"  # split of the simulator's rooms


class CommandPublisher:
    """Publishers and clients for one robot; at: its topic prefix; simulated: navsim runs it."""

    def __init__(self, node: Node, at: str, group: ThrottledExecutor, simulated: bool) -> None:
        self._group = group
        self._parameters: dict[str, Any] = {}

        def publisher(kind: type, topic: str) -> Any:
            return node.create_publisher(kind, at + topic, RELIABLE, callback_group=group)

        def client(kind: type, service: str) -> Any:
            return node.create_client(kind, at + service, callback_group=group)

        self._instruct = publisher(String, "instruction")
        self._stop = publisher(Empty, "stop")
        # A warning about its QoS would say that the e-stop is not heard: of motion_node's three
        # subscriptions one is expected not to match (see subscriptions.py).
        quiet = PublisherEventCallbacks(use_default_callbacks=False)
        self._estop = node.create_publisher(
            Bool, f"{at}e_stop", RELIABLE, callback_group=group, event_callbacks=quiet
        )
        self._reset, self._cancel = publisher(Empty, "e_stop_reset"), publisher(Empty, "vlm_nav_node/cancel")
        self._presence = publisher(Presence, "presence")
        self._missions: Any = ActionClient(node, RunMission, f"{at}run_mission")
        self._change = client(ChangeMission, "mission_node/change")
        self._set = {each: client(SetParameters, f"{each}/set_parameters") for each in LIVE}
        self._get = {each: client(GetParameters, f"{each}/get_parameters") for each in LIVE}
        self._room: Any = None
        if simulated:
            self._room = node.create_publisher(String, f"{at}navsim/reset", 1, callback_group=group)
            self._set_simulator = client(SetParameters, "navsim/set_parameters")

    def _call(self, client: Any, request: Any, done: Callable[[Any], None]) -> None:
        """Call a service; `done` receives the response."""
        self._group.expect()
        client.call_async(request).add_done_callback(lambda future: done(future.result()))

    # -- operator commands

    def stop(self) -> None:
        """Publish a stop."""
        self._stop.publish(Empty())

    def estop(self) -> None:
        """Latch the emergency stop."""
        self._estop.publish(Bool(data=True))

    def reset(self) -> None:
        """Reset the emergency stop."""
        self._reset.publish(Empty())

    def instruct(self, words: str) -> None:
        """Begin an instruction."""
        self._instruct.publish(String(data=words))

    def cancel(self) -> None:
        """Cancel the instruction."""
        self._cancel.publish(Empty())

    def hold(self, holder: str, holds: bool) -> None:
        """Publish that an operator holds or has released control (dead man's switch)."""
        self._presence.publish(Presence(holder=holder, kind=OPERATOR, holds=holds))

    def run_mission(self, text: str, answer: Answer) -> None:
        """Begin a mission; answer: called with its success and message at the end."""
        if not self._missions.server_is_ready():
            answer(False, "mission_node is not heard: start it (mission:=true)")
            return

        def on_result(future: Any) -> None:
            if future.result().status == GoalStatus.STATUS_UNKNOWN:  # its result is empty
                answer(False, "mission_node does not know the mission any more: was it restarted?")
                return
            result = future.result().result
            answer(result.error_code == 0, result.error_msg or "mission done")

        def on_accepted(future: Any) -> None:
            future.result().get_result_async().add_done_callback(on_result)

        sent = self._missions.send_goal_async(RunMission.Goal(mission=text))
        sent.add_done_callback(on_accepted)

    def change_mission(self, order: str, step: int, place: int, steps: str, answer: Answer) -> None:
        """Change the mission under way; see ChangeMission.srv."""
        if not self._change.service_is_ready():
            answer(False, "mission_node is not heard")
            return
        request = ChangeMission.Request(order=order, step=step, place=place, steps=steps)

        self._call(self._change, request, lambda told: answer(told.success, told.message))

    # -- live parameters

    def parameters(self) -> list[dict[str, Any]]:
        """Return the live parameters with their ranges and, if known, their values."""
        return live_rows(self._parameters)

    def ask_parameters(self) -> None:
        """Request the parameter values from the nodes."""
        for node, names in LIVE.items():
            client = self._get[node]
            if client.service_is_ready():

                def done(told: Any, node: str = node, names: Iterable[str] = names) -> None:
                    for name, value in zip(names, told.values, strict=False):
                        message = ParameterMessage(name=name, value=value)
                        found = RosParameter.from_parameter_msg(message).value
                        self._parameters[f"{node}/{name}"] = found

                self._call(client, GetParameters.Request(names=list(names)), done)

    def set_parameter(self, node: str, name: str, value: Value, answer: Answer) -> None:
        """Set a live parameter."""
        client = self._set.get(node)
        if client is None or name not in LIVE[node]:
            answer(False, f"{node} {name} is not a live parameter")
            return
        if not client.service_is_ready():
            answer(False, f"{node} is not heard")
            return
        request = _setting({name: value})

        def done(told: Any) -> None:
            result = told.results[0]
            if result.successful:
                self._parameters[f"{node}/{name}"] = value
            answer(result.successful, result.reason or f"{name} = {value}")

        self._call(client, request, done)

    # -- the simulator

    @property
    def is_simulated(self) -> bool:
        """Whether a simulator listens."""
        return self._room is not None and self._room.get_subscription_count() > 0

    def enter_room(self, seed: int) -> None:
        """Put the simulated robot at the start of a room."""
        said = {"seed": seed, "split": SPLIT, "absent": False}
        self._room.publish(String(data=json.dumps(said)))

    def inject(self, fault: dict[str, Any], answer: Answer) -> None:
        """Begin a fault in the simulator; it replaces the previous one."""
        if not self.is_simulated or not self._set_simulator.service_is_ready():
            answer(False, "the simulator is not heard")
            return

        def done(told: Any) -> None:
            wrong = [r.reason for r in told.results if not r.successful]
            answer(not wrong, "; ".join(wrong) or "the simulator has applied it")

        self._call(self._set_simulator, _setting(fault), done)


def _setting(values: dict[str, Value]) -> SetParameters.Request:
    parameters = [RosParameter(n, value=v).to_parameter_msg() for n, v in values.items()]
    return SetParameters.Request(parameters=parameters)

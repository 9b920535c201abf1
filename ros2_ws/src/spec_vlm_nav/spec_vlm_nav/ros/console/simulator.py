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

"""The simulator behind a robot, as the console's page may change it: faults and rooms."""

from __future__ import annotations

from collections.abc import Callable
import json
from typing import Any

from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from spec_vlm_nav.ros.throttled_executor import ThrottledExecutor
from std_msgs.msg import String

SPLIT = "heldout"


class Simulator:
    """navsim of one robot, whose topics begin with `at`."""

    def __init__(self, node: Node, at: str, group: ThrottledExecutor) -> None:
        self._group = group
        self._reset = node.create_publisher(String, f"{at}navsim/reset", 1, callback_group=group)
        self._set: Any = node.create_client(
            SetParameters, f"{at}navsim/set_parameters", callback_group=group
        )

    @property
    def is_there(self) -> bool:
        """Whether a simulator listens."""
        return self._reset.get_subscription_count() > 0

    def enter_room(self, seed: int) -> None:
        """Put the robot at the start of a room."""
        said = {"seed": seed, "split": SPLIT, "absent": False}
        self._reset.publish(String(data=json.dumps(said)))

    def inject(self, fault: dict[str, Any], answer: Callable[[bool, str], None]) -> None:
        """Begin a fault, ending the one before."""
        if not self._set.service_is_ready():
            answer(False, "the simulator is not heard")
            return
        request = SetParameters.Request()
        request.parameters = [Parameter(n, value=v).to_parameter_msg() for n, v in fault.items()]

        def done(future: Any) -> None:
            wrong = [r.reason for r in future.result().results if not r.successful]
            answer(not wrong, "; ".join(wrong) or "the simulator does so")

        self._group.expect()
        self._set.call_async(request).add_done_callback(done)

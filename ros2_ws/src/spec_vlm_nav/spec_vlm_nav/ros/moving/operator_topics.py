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
The operator's topics and services of motion_node: stop, emergency stop, reset.

Stop words on the topic `instruction` are handled here, too: they must work even if the navigator
hangs.
"""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from spec_vlm_nav.common.foreign_words import one_line
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.ros.subscriptions import subscribe
from std_msgs.msg import Bool, Empty, String
from std_srvs.srv import Trigger


class Operator:
    """Topics `stop`, `e_stop`, `e_stop_reset` and `instruction`, and services of the node."""

    def __init__(
        self,
        node: Node,
        on_stop: Callable[[str], None],
        on_estop: Callable[[str], None],
        on_reset: Callable[[], str],
        drain: Callable[[], bool],
        estopped_by: Callable[[], str],
    ) -> None:
        """
        Create the subscriptions and services.

        on_reset: returns in words what was reset.
        drain: returns whether a stop was acknowledged.
        estopped_by: returns why the e-stop is latched, or "".
        """
        self._on_stop, self._on_estop, self._on_reset = on_stop, on_estop, on_reset
        self._drain, self._estopped_by = drain, estopped_by
        # The instruction topic first: the executor serves subscriptions in this order, and commands
        # of a newer instruction must not overtake the stop before it.
        subscribe(node, String, "instruction", self._on_words)
        subscribe(node, Empty, "stop", lambda message: self._on_stop("topic stop"))
        subscribe(node, Bool, "e_stop", self._on_button, latched=True)
        subscribe(node, Empty, "e_stop_reset", self._on_reset_message)
        node.create_service(Trigger, "~/stop", self._on_stop_request)
        node.create_service(Trigger, "~/e_stop", self._on_estop_request)
        node.create_service(Trigger, "~/reset", self._on_reset_request)

    def _on_words(self, message: String) -> None:
        if is_stop(message.data):
            self._on_stop(f'instruction "{one_line(message.data[:40])}"')

    def _on_reset_message(self, message: Empty) -> None:
        self._on_reset()

    def _on_button(self, message: Bool) -> None:
        if message.data:
            self._on_estop("topic e_stop")

    def _on_stop_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._on_stop("service stop")
        response.success = True
        heard = self._arrived()
        response.message = f"stop {heard}; the next instruction may move the robot again"
        return response

    def _on_estop_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._on_estop("service e_stop")
        response.success = True
        response.message = f"e-stop {self._arrived()}; nothing moves until ~/reset"
        return response

    def _on_reset_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        was = self._on_reset()
        said = f"reset: {was}" if was else "there was nothing to reset"
        still = self._estopped_by()
        response.success = not still
        free = "the next instruction may move the robot again"
        then = f"e-stop again: {still}" if still else free
        response.message = f"{said}; {then}"
        return response

    def _arrived(self) -> str:
        return "heard" if self._drain() else "sent; not every subscriber has confirmed it"

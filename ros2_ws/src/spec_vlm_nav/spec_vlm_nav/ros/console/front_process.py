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

"""Entry point of the front process: stop publishers for each robot, and `console.front`."""

from __future__ import annotations

import sys
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from spec_vlm_nav.console.front import run_front
from spec_vlm_nav.ros.basics import RELIABLE
from std_msgs.msg import Bool, Empty

MESSAGES: dict[str, Any] = {"stop": Empty(), "estop": Bool(data=True)}


class StopRelay:
    """Publishers of STOP and the emergency stop for all robots."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publishers: dict[str, dict[str, Any]] = {}

    def meet(self, names: list[str]) -> None:
        """Create publishers for new robots."""
        node = self._node
        for name in names:
            if name not in self._publishers:
                at = f"/{name}/" if name else "/"
                self._publishers[name] = {
                    "stop": node.create_publisher(Empty, f"{at}stop", RELIABLE),
                    "estop": node.create_publisher(Bool, f"{at}e_stop", RELIABLE),
                }

    def publish(self, name: str, kind: str) -> bool:
        """Publish a stop; returns whether it has a subscriber."""
        if name not in self._publishers:
            return False
        publisher = self._publishers[name][kind]
        publisher.publish(MESSAGES[kind])
        return bool(publisher.get_subscription_count())


def main() -> None:
    """Entry point. Arguments: file descriptors of both sockets, the node's name, ROS arguments."""
    listening, control, name, *arguments = sys.argv[1:]
    own = ["--ros-args", "-r", f"__node:={name}", "--"]
    rclpy.init(args=[*own, *arguments], signal_handler_options=SignalHandlerOptions.NO)
    node = Node(name, start_parameter_services=False, enable_rosout=False)
    stops = StopRelay(node)
    run_front(int(listening), int(control), stops.publish, stops.meet)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()

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
The parts of blackbox_node: the topics that it records, and a recording's metadata.

A best-effort subscription matches every publisher but loses messages on a bad network. So topics of
this package's nodes, which publish reliably, are subscribed reliably; the operator's topics both
ways (each message kept once); everything else best effort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
import importlib
from importlib.metadata import PackageNotFoundError, version
import importlib.util
import os
import platform
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage, Image, LaserScan
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.parameters.nodes import tables
from spec_vlm_nav.ros.basics import qos
from spec_vlm_nav.ros.subscriptions import subscribe
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus, RobotState, Supervision
from std_msgs.msg import Bool, Empty, String

BEST_EFFORT, RELIABLE, BOTH = "best_effort", "reliable", "both"
SPORT = "api/sport/request"
PACKAGES = ("specnav", "torch", "transformers", "numpy", "pyzmq", "mcap")
NODES = ("motion_node", "vlm_nav_node")


@dataclass(frozen=True)
class RecordedTopic:
    """
    A topic to record.

    kind: its message class.
    reliability: of the subscription; BOTH: one subscription of each kind.
    picture: its messages are thinned out when memory is short.
    lasting: its newest message stays valid until the next one.
    depth: of the queue.
    """

    name: str
    kind: type
    reliability: str = BEST_EFFORT
    picture: bool = False
    lasting: bool = False
    depth: int = 50


def heard_topics(transport: str, stamped: bool, collision: str) -> list[RecordedTopic]:
    """
    Return the topics to record.

    transport: compressed or raw. stamped: cmd_vel is TwistStamped. collision: none, scan or depth.
    """
    found = [
        RecordedTopic("motion_status", MotionStatus, RELIABLE),
        RecordedTopic("motion_command", MotionCommand, RELIABLE),
        RecordedTopic("supervision", Supervision, RELIABLE),
        RecordedTopic("vlm_nav_node/metrics", DecisionMetrics, RELIABLE),
        RecordedTopic("vlm_nav_node/reasoning", String, RELIABLE),
        RecordedTopic("vlm_nav_node/action", String, RELIABLE),
        RecordedTopic("vlm_nav_node/outcome", String, RELIABLE),
        RecordedTopic("instruction", String, BOTH, lasting=True),
        RecordedTopic("stop", Empty, BOTH, lasting=True),
        RecordedTopic("e_stop", Bool, BOTH, lasting=True),
        RecordedTopic("e_stop_reset", Empty, BOTH, lasting=True),
        RecordedTopic("robot_state", RobotState, lasting=True),
        RecordedTopic("safety_changes", String, RELIABLE, lasting=True),
        RecordedTopic("odom", Odometry),
        RecordedTopic("cmd_vel", TwistStamped if stamped else Twist),
        RecordedTopic("/diagnostics", DiagnosticArray),
        RecordedTopic(
            "image",
            CompressedImage if transport == "compressed" else Image,
            picture=True,
            depth=5 if transport == "compressed" else 1,
        ),
    ]
    if collision == "scan":
        found.append(RecordedTopic("scan", LaserScan))
    elif collision == "depth":
        found.append(RecordedTopic("depth", Image, picture=True, depth=1))
    if importlib.util.find_spec("unitree_api"):
        request = importlib.import_module("unitree_api.msg").Request
        found.append(RecordedTopic(SPORT, request, RELIABLE))
    return found


def subscribe_raw(node: Node, heard: RecordedTopic, take: Callable[[bytes], None]) -> None:
    """Subscribe and pass every message's bytes to `take`."""
    if heard.reliability == BOTH:
        subscribe(node, heard.kind, heard.name, take, raw=True, latched=heard.kind is Bool)
    else:
        quality = qos(heard.reliability, heard.depth)
        node.create_subscription(heard.kind, heard.name, take, quality, raw=True)


def type_name(kind: type) -> str:
    """Return a message class's type name as used in files: package/msg/Name."""
    return f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"


def versions() -> dict[str, str]:
    """Return the versions of Python, ROS and PACKAGES; "" if not installed."""
    found = {"python": platform.python_version(), "ros": os.environ.get("ROS_DISTRO", "")}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    return found


class NodeParameters:
    """
    Asks the nodes for their parameters and keeps the last answers.

    It never blocks: if a node does not answer, its previous answer is kept.
    """

    def __init__(self, node: Node) -> None:
        self.known: dict[str, dict[str, Value]] = {}
        self._clients: dict[str, Any] = {
            name: node.create_client(GetParameters, f"{name}/get_parameters") for name in NODES
        }

    @property
    def missing(self) -> bool:
        """Whether a node has never answered."""
        return len(self.known) < len(NODES)

    def ask(self) -> None:
        """Ask the nodes whose services are available."""
        for node, client in self._clients.items():
            if client.service_is_ready():
                names = [parameter.name for parameter in tables()[node]]
                answer = client.call_async(GetParameters.Request(names=names))
                answer.add_done_callback(partial(self._keep, node, names))

    def _keep(self, node: str, names: list[str], answer: Future[GetParameters.Response]) -> None:
        response = answer.result()
        if response is not None and len(response.values) == len(names):
            told = (
                ParameterMessage(name=name, value=value)
                for name, value in zip(names, response.values, strict=True)
            )
            self.known[node] = {one.name: Parameter.from_parameter_msg(one).value for one in told}

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

"""Metadata of a recording: software versions and the nodes' parameters."""

from __future__ import annotations

from functools import partial
from importlib.metadata import PackageNotFoundError, version
import os
import platform
from typing import Any

from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import GetParameters
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.task import Future
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.parameters.nodes import tables

PACKAGES = ("specnav", "torch", "transformers", "numpy", "pyzmq", "mcap")
NODES = ("motion_node", "vlm_nav_node")


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

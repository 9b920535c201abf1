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
Publishes a node's rows on /diagnostics once a second.

The topic is global by convention; each row's name contains the node's name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from spec_vlm_nav.common.diagnostics import DiagnosticRow
from spec_vlm_nav.ros.basics import steady_timer

PERIOD_S = 1.0


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def diagnostic_array(node: Node, rows: Sequence[DiagnosticRow]) -> DiagnosticArray:
    """Return the message; each row's name is prefixed with the node's full name."""
    message = DiagnosticArray()
    message.header.stamp = node.get_clock().now().to_msg()
    for row in rows:
        status = DiagnosticStatus(level=bytes([row.level.value]), message=row.message)
        status.name = f"{node.get_fully_qualified_name()[1:]}: {row.name}"
        status.hardware_id = node.get_namespace()
        status.values = [KeyValue(key=key, value=_value(value)) for key, value in row.values.items()]
        message.status.append(status)
    return message


class Diagnostics:
    """Calls `rows` once a second, by a steady clock, and publishes the result."""

    def __init__(self, node: Node, rows: Callable[[], Sequence[DiagnosticRow]]) -> None:
        self._node, self._rows = node, rows
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        steady_timer(node, PERIOD_S, self._publish)

    def _publish(self) -> None:
        self._publisher.publish(diagnostic_array(self._node, self._rows()))

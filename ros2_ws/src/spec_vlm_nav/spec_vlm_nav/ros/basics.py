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

"""What several nodes need of rclpy: QoS, steady timers, diagnostics, actions, optional message types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
import importlib
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.action import ActionServer
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.timer import Timer
from spec_vlm_nav.common.diagnostics import DiagnosticRow
from spec_vlm_nav.common.errors import NavigationError, one_line
from spec_vlm_nav.common.parameters import Value

DIAGNOSTICS_S, THROTTLED_S = 1.0, 10.0


def qos(reliability: Value, depth: int, latched: bool = False) -> QoSProfile:
    """Return a profile; reliability: reliable or best_effort; latched: late subscribers count."""
    durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
    policy = ReliabilityPolicy[str(reliability).upper()]
    return QoSProfile(depth=depth, reliability=policy, durability=durability)


RELIABLE = qos("reliable", 20)


def steady_timer(node: Node, period_s: float, act: Callable[[], None]) -> Timer:
    """Return a timer on the steady clock: a jump or pause of the robot's clock must not stop it."""
    return node.create_timer(period_s, act, clock=Clock(clock_type=ClockType.STEADY_TIME))


def unitree_types(package: str, names: tuple[str, ...], user: str, instead: str = "") -> tuple[Any, ...]:
    """
    Return message types of one of Unitree's packages.

    user: what needs them. instead: what does without. Raises NavigationError if it is missing.
    """
    try:
        messages = importlib.import_module(f"{package}.msg")
        return tuple(getattr(messages, name) for name in names)
    except ImportError as error:
        raise NavigationError(
            f"{user} needs the ROS package {package}: build it with colcon from "
            f"github.com/unitreerobotics/unitree_ros2 (cyclonedds_ws/src/unitree/{package}) "
            f"and source its install/setup.bash{instead} ({error})"
        ) from error


class TextThrottle:
    """Passes each text on at most once in THROTTLED_S."""

    def __init__(self, say: Callable[[str], Any]) -> None:
        self._say = say
        self._said: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Pass a text on unless it was passed on lately."""
        now, text = time.monotonic(), one_line(text)  # it may repeat foreign words
        if now - self._said.get(text, -1e9) < THROTTLED_S:
            return
        if len(self._said) > 100:  # bounds memory: the texts may contain anything
            self._said.clear()
        self._said[text] = now
        self._say(text)


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
    """Calls `rows` once a second, by a steady clock, and publishes the result on a global topic."""

    def __init__(self, node: Node, rows: Callable[[], Sequence[DiagnosticRow]]) -> None:
        self._node, self._rows = node, rows
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        steady_timer(node, DIAGNOSTICS_S, self._publish)

    def _publish(self) -> None:
        self._publisher.publish(diagnostic_array(self._node, self._rows()))


class DeferringServer(ActionServer):
    """
    An action server that needs no thread per goal.

    In rclpy, an execute callback returns the result. That needs one thread per goal, or a coroutine,
    which older releases poll in a busy loop.
    """

    def __init__(
        self, node: Node, kind: type, name: str, begin: Callable[[Any], None], **callbacks: Any
    ) -> None:
        self._begin = begin
        super().__init__(node, kind, name, execute_callback=begin, **callbacks)

    def notify_execute(self, goal_handle: Any, execute_callback: Any) -> None:
        """Begin the goal; rclpy calls this when it is to be executed."""
        self._begin(goal_handle)

    def finish(self, goal_handle: Any, result: Any) -> None:
        """End a goal with its result; an `error_code` of 0 means success."""

        def end(handle: Any) -> Any:
            if handle.is_cancel_requested:
                handle.canceled()
            elif result.error_code == 0:
                handle.succeed()
            else:
                handle.abort()
            return result

        super().notify_execute(goal_handle, end)

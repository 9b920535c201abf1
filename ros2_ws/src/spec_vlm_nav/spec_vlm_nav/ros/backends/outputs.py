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
Publishers of the motion back-ends: they turn velocities into messages.

`motion/backends` encodes the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
import importlib.util
import time

from geometry_msgs.msg import Twist, TwistStamped
from rclpy.duration import Duration
from rclpy.node import Node
from spec_vlm_nav.common.errors import BackendError
from spec_vlm_nav.common.geometry import Velocity, ZERO
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.motion.backends.nav2 import Nav2Executor
from spec_vlm_nav.motion.backends.velocity import Go2Avoiding, Go2Sport, SportRequest
from spec_vlm_nav.motion.executor import Executor, MotionExecutor
from spec_vlm_nav.motion.loop import VelocityOutput
from spec_vlm_nav.motion.parameters import stop_config
from spec_vlm_nav.motion.stopping import RestDetector, StopConfig, TwistStops
from spec_vlm_nav.ros.backends.nav2_actions import Nav2Goals
from spec_vlm_nav.ros.basics import qos, unitree_types

DRAIN = Duration(seconds=0.2)
# A stop is two requests: with a depth of 1 the second could displace the first.
SPORT_QOS = qos("reliable", 10)


class Output(VelocityOutput):
    """Receives velocities, and hands the robot over to other programs."""

    def release(self) -> None:
        """Release the standing robot to other programs; called last. A silent publisher holds none."""

    def drain(self) -> bool:
        """Wait up to DRAIN until sent messages are acknowledged; returns whether they are."""
        return True


class TwistOutput(Output):
    """Publishes velocities as Twist or TwistStamped on `cmd_vel`: any robot."""

    def __init__(self, node: Node, stamped: bool, frame: str, stops: StopConfig) -> None:
        self._node, self._stamped, self._frame = node, stamped, frame
        self._stops, self._last = TwistStops(stops), ZERO
        kind = TwistStamped if stamped else Twist
        self._publisher = node.create_publisher(kind, "cmd_vel", qos("reliable", 1))

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Publish one velocity; nothing once the robot stands after a stop."""
        if (said := self._stops.velocity(velocity, rest, time.monotonic())) is not None:
            self._publish(said)

    def _publish(self, velocity: Velocity) -> None:
        self._last = velocity
        twist = Twist()
        twist.linear.x, twist.angular.z = velocity.linear, velocity.angular
        if not self._stamped:
            self._publisher.publish(twist)
            return
        message = TwistStamped(twist=twist)
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.header.frame_id = self._frame
        self._publisher.publish(message)

    def stop(self) -> bool:
        """Publish a stop; the following ticks repeat it."""
        said = self._stops.stop(time.monotonic())
        self._publish(said)
        return said == ZERO

    def release(self) -> None:
        """Publish a zero if braking has not come to it: a base may hold its last Twist."""
        if self._last != ZERO:
            self._publish(ZERO)

    def drain(self) -> bool:
        return bool(self._publisher.wait_for_all_acked(DRAIN))


class SportOutput(Output):
    """
    Publishes unitree_api/Request on `api/<service>/request`.

    It drives a Unitree Go2 without a separate driver.
    """

    def __init__(self, node: Node, encoder: Go2Sport) -> None:
        user, instead = "motion_backend go2_sport", ", or use motion_backend twist with a driver"
        (self._message,) = unitree_types("unitree_api", ("Request",), user, instead)
        self._encoder = encoder
        self._has_begun = False
        self._publishers = {
            service: node.create_publisher(self._message, f"api/{service}/request", SPORT_QOS)
            for service in encoder.services
        }

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Publish the requests for one velocity; nothing after a few stops."""
        if not self._has_begun and self._is_found():
            self._has_begun = True
            self._publish(self._encoder.begin())
        self._publish(self._encoder.velocity(velocity))

    def _is_found(self) -> bool:
        return all(p.get_subscription_count() > 0 for p in self._publishers.values())

    def stop(self) -> bool:
        """Publish Move(0, 0, 0) and StopMove."""
        self._publish(self._encoder.stop())
        return True

    def release(self) -> None:
        """Hand the robot back to its remote control; called last."""
        self._publish(self._encoder.release())

    def drain(self) -> bool:
        arrived = [p.wait_for_all_acked(DRAIN) for p in self._publishers.values()]
        return all(arrived)

    def _publish(self, requests: tuple[SportRequest, ...]) -> None:
        for request in requests:
            message = self._message(parameter=request.parameter)
            message.header.identity.id = time.monotonic_ns()  # the robot's answers carry it
            message.header.identity.api_id = request.api_id
            self._publishers[request.service].publish(message)


class Nav2Output(Output):
    """Sends no velocities while Nav2 drives. A stop cancels the goal and also publishes zero on `cmd_vel`."""

    def __init__(self, goals: Nav2Goals, zero: TwistOutput) -> None:
        self._goals, self._zero = goals, zero

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Send nothing: Nav2 sends the velocities. While a canceled goal lingers, it sends zero."""
        if self._goals.insist():
            self._zero.stop()

    def stop(self) -> bool:
        """Cancel the goal and publish a zero velocity."""
        self._goals.cancel()
        return self._zero.stop()

    def drain(self) -> bool:
        return self._zero.drain()


class DryOutput(Output):
    """Sends nothing, not even stops: with dry_run another program may control the robot."""

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Send nothing."""

    def stop(self) -> bool:
        """Send nothing; counts as a zero velocity."""
        return True


def make_backend(node: Node, values: Mapping[str, Value]) -> tuple[Output, Executor]:
    """
    Make the configured back-end; with dry_run its output is a DryOutput.

    Raises BackendError if its package is missing.
    """
    output, executor = _make_backend(node, values)  # a missing package is reported with dry_run, too
    return (DryOutput() if values["dry_run"] else output), executor


def _make_backend(node: Node, values: Mapping[str, Value]) -> tuple[Output, Executor]:
    backend = values["motion_backend"]
    if backend == "auto":
        backend = "go2_sport" if importlib.util.find_spec("unitree_api") else "twist"
        node.get_logger().info(f"motion_backend auto: {backend}")
    avoiding = bool(values["go2_obstacles_avoid"])
    if backend == "go2_sport":
        return SportOutput(node, Go2Avoiding() if avoiding else Go2Sport()), MotionExecutor()
    if avoiding:
        raise BackendError(
            "go2_obstacles_avoid needs motion_backend go2_sport, and auto found no unitree_api"
        )
    twist = TwistOutput(
        node,
        bool(values["enable_stamped_cmd_vel"]),
        str(values["cmd_vel_frame"]),
        stop_config(values),
    )
    if backend == "nav2":
        goals = Nav2Goals(node)
        return Nav2Output(goals, twist), Nav2Executor(goals)
    return twist, MotionExecutor()

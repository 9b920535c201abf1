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
The node that moves the robot.

It is the only sender of velocities. They come from its own steady timer, through executor and
safety gate.

It trusts no sender: commands have sequence numbers and deadlines, and every input has a watchdog.
Any end of this process except SIGKILL and a crash of the interpreter sends the back-end's stop
first. (After those, the base's own timeout must stop it.)
"""

from __future__ import annotations

from collections.abc import Sequence
import sys
import time

from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from rclpy.node import Node
from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.errors import one_line
from spec_vlm_nav.common.kept_file import given_path, home
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.diagnostics import rows
from spec_vlm_nav.motion.latches import LatchKeeper
from spec_vlm_nav.motion.loop import MotionLoop, StatusReport
from spec_vlm_nav.motion.parameters import (
    check_motion,
    corridor_config,
    executor_config,
    MOTION,
    safety_config,
)
from spec_vlm_nav.ros.backends.outputs import make_backend
from spec_vlm_nav.ros.basics import Diagnostics, qos, steady_timer
from spec_vlm_nav.ros.collision_sensor import CollisionSensor
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.loosening import LimitLoosening
from spec_vlm_nav.ros.messages import command_of, reading_of, status_message, supervision_of
from spec_vlm_nav.ros.run import run
from spec_vlm_nav.ros.subscriptions import subscribe
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus, Presence, RobotState, Supervision
from std_msgs.msg import Bool, Empty, String
from std_srvs.srv import Trigger

BURST_PAUSE_S = 0.02
KEPT_WITHIN_S = 0.25  # longest wait for a new state to reach the disk before it is reported
LONGEST_BURST = 150  # stops: braking, and the zeros behind it
LONGEST_NAME = 80  # of what holds presence
PRESENCE_S = 0.05
NOT_WORTH_A_WARNING = (MotionState.MOVING, MotionState.SETTLING, MotionState.REACHED, MotionState.STOPPED)


class MotionNode:
    """ROS shell around MotionCore."""

    def __init__(self) -> None:
        self.node = node = Node("motion_node")
        self._values = values = declare(node, MOTION, check=check_motion)
        self._output, executor = make_backend(node, values)
        self._core = MotionCore(executor_config(values), safety_config(values), executor)
        self._keeper = LatchKeeper(
            given_path(
                "state_file",
                str(values["state_file"]),
                lambda: home(node.get_namespace()) / f"{node.get_name()}.json",
            )
        )
        kept = self._keeper.begin()
        self._core.restore(kept)
        if kept.holds:
            node.get_logger().error(f"held since before the start: {one_line(kept.holds)}")
        self._collision_sensor = CollisionSensor(
            node,
            str(values["collision_source"]),
            str(values["collision_reliability"]),
            corridor_config(values),
            self._on_clearance,
        )
        guard = LimitLoosening(node, MOTION, values, self._why_not_standing).check
        follow_changes(node, MOTION, values, self._apply, check=check_motion, guard=guard)
        # The instruction topic first: the executor serves subscriptions in this order, and commands
        # of a newer instruction must not overtake the stop before it.
        subscribe(node, String, "instruction", self._on_words)
        subscribe(node, Empty, "stop", lambda message: self._stop("topic stop"))
        subscribe(node, Bool, "e_stop", self._on_button, latched=True)
        subscribe(node, Empty, "e_stop_reset", self._on_reset_message)
        node.create_service(Trigger, "~/stop", self._on_stop_request)
        node.create_service(Trigger, "~/e_stop", self._on_estop_request)
        node.create_service(Trigger, "~/reset", self._on_reset_request)
        reliable, odometry = qos("reliable", 10), qos(values["odom_reliability"], 5)
        self._status = node.create_publisher(MotionStatus, "motion_status", reliable)
        # Heartbeats first, as the executor serves them in this order: commands are proven by them.
        node.create_subscription(Supervision, "supervision", self._on_supervision, reliable)
        node.create_subscription(MotionCommand, "motion_command", self._on_command, reliable)
        node.create_subscription(RobotState, "robot_state", self._on_robot_state, qos("best_effort", 1))
        node.create_subscription(Odometry, "odom", self._on_odometry, odometry)
        node.create_subscription(Presence, "presence", self._on_presence, reliable)
        self._diagnostics = Diagnostics(node, lambda: rows(self._core, time.monotonic()))
        rate_hz = float(values["rate_hz"])
        self._loop = MotionLoop(
            self._core,
            self._output,
            self._publish_status,
            rate_hz,
            time.monotonic,
            lambda: node.get_clock().now().to_msg(),
        )
        steady_timer(node, 1 / rate_hz, self._loop.tick)
        steady_timer(node, PRESENCE_S, self._mind_presence)
        dry = " (dry run: nothing moves)" if values["dry_run"] else ""
        node.get_logger().info(f"motion_node ready{dry}")

    def _why_not_standing(self) -> str:
        stands = self._core.stands(time.monotonic())
        return "" if stands else "the robot does not stand, or odometry does not show it"

    def _apply(self, values: dict[str, Value]) -> None:
        self._core.configure(executor_config(values), safety_config(values))
        self._collision_sensor.config = corridor_config(values)

    def _on_odometry(self, message: Odometry) -> None:
        self._core.on_odometry(reading_of(message), time.monotonic())
        self._loop.follow()

    def _on_supervision(self, message: Supervision) -> None:
        self._core.on_supervision(supervision_of(message), time.monotonic())
        self._loop.follow()

    def _on_clearance(self, clearance: Clearance, now: float) -> None:
        self._core.on_clearance(clearance, now)
        self._loop.follow()

    def _on_command(self, message: MotionCommand) -> None:
        proofs = self._core.gate.supervision
        unproven = proofs.unproven(message.session, bytes(message.nonce), time.monotonic())
        self._loop.command(command_of(message), unproven)

    def _on_robot_state(self, message: RobotState) -> None:
        self._core.on_robot_state(message.ready, one_line(message.reason), time.monotonic())
        self._loop.follow()

    def _on_presence(self, message: Presence) -> None:
        watch = self._core.gate.presence
        watch.hear(one_line(message.holder, LONGEST_NAME), message.kind, message.holds, time.monotonic())
        self._mind_presence()

    def _mind_presence(self) -> None:
        if lost := self._core.lost_presence(time.monotonic()):
            self._stop(lost)

    # -- the operator

    def _on_words(self, message: String) -> None:
        """Stop at a stop word on `instruction`, too: it must work even if the navigator hangs."""
        if is_stop(message.data):
            self._stop(f'instruction "{one_line(message.data[:40])}"')

    def _on_button(self, message: Bool) -> None:
        if message.data:
            self._estop("topic e_stop")

    def _on_reset_message(self, message: Empty) -> None:
        self._reset()

    def _on_stop_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._stop("service stop")
        response.success = True
        response.message = f"stop {self._arrived()}; the next instruction may move the robot again"
        return response

    def _on_estop_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._estop("service e_stop")
        response.success = True
        response.message = f"e-stop {self._arrived()}; nothing moves until ~/reset"
        return response

    def _on_reset_request(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        was = self._reset()
        said = f"reset: {was}" if was else "there was nothing to reset"
        still = self._core.gate.estopped_by
        response.success = not still
        free = "the next instruction may move the robot again"
        then = f"e-stop again: {still}" if still else free
        response.message = f"{said}; {then}"
        return response

    def _arrived(self) -> str:
        return "heard" if self._output.drain() else "sent; not every subscriber has confirmed it"

    def _stop(self, how: str) -> None:
        self._core.stop()
        self._loop.stand()
        self.node.get_logger().warning(
            f"stopped by the operator ({how}): nothing moves until the next instruction"
        )

    def _estop(self, how: str) -> None:
        was_latched = bool(self._core.gate.estopped_by)
        self._core.estop(how)
        self._loop.stand()
        if not was_latched:
            service = f"{self.node.get_fully_qualified_name()}/reset"
            self.node.get_logger().error(
                f"EMERGENCY STOP ({how}): nothing moves until ros2 service call {service} "
                "std_srvs/srv/Trigger"
            )

    def _reset(self) -> str:
        was = self._core.reset()
        self._loop.stand()
        self._remember(KEPT_WITHIN_S)
        self.node.get_logger().warning(f"reset by the operator: {was or 'nothing was latched'}")
        return was

    # -- outputs

    def _remember(self, wait_s: float = 0.0) -> None:
        """Store the latches on disk; latch the e-stop if they cannot be stored."""
        self._keeper.keep(self._core.gate.latches, wait_s)
        if self._keeper.trouble and not self._core.gate.estopped_by:
            self._estop(f"the latches cannot be stored: {self._keeper.trouble}")

    def _publish_status(self, told: StatusReport[Time]) -> None:
        status = told.status
        self._remember(KEPT_WITHIN_S if told.is_new else 0.0)
        self._status.publish(status_message(status, told.stamp, told.since))
        if told.is_new and status.state not in NOT_WORTH_A_WARNING:
            self.node.get_logger().warning(
                f"command {status.sequence} {status.state.name}: {one_line(status.reason)}"
            )

    def close(self) -> None:
        """Send the back-end's stop, wait until it has arrived, and end the threads."""
        left = int(self._values["zero_burst"])
        for _ in range(LONGEST_BURST):
            left -= self._output.stop()
            if left <= 0:
                break
            time.sleep(BURST_PAUSE_S)
        self._output.release()
        self._output.drain()
        self._collision_sensor.close()
        self._keeper.keep(self._core.gate.latches)
        self._keeper.close()


def main(args: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run(MotionNode, args)


if __name__ == "__main__":
    sys.exit(main())

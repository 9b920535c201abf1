"""The node that moves: the only sender of velocities, from its own steady timer, through executor and safety gate.

It trusts nobody: commands have sequence numbers and deadlines, odometry has a watchdog, and whatever ends this process
short of SIGKILL sends the motion back-end's stop first. (After a SIGKILL the base's own time-out must stop it.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from spec_vlm_nav.executor import ExecutorConfig
from spec_vlm_nav.motion_core import MotionCore
from spec_vlm_nav.motion_parameters import MOTION
from spec_vlm_nav.nodes.declare import declare, follow_changes
from spec_vlm_nav.nodes.messages import command_of, pose_of, status_message
from spec_vlm_nav.nodes.outputs import make_output
from spec_vlm_nav.nodes.run import run
from spec_vlm_nav.parameters import Value
from spec_vlm_nav.safety import CommandKind, SafetyConfig

HEARTBEAT_S = 0.5
BURST_PAUSE_S = 0.02


def executor_config(values: dict[str, Value]) -> ExecutorConfig:
    """The executor's part of the parameters."""
    return ExecutorConfig(
        linear_speed=float(values["max_linear"]),
        angular_speed=float(values["max_angular"]),
        linear_tolerance=float(values["linear_tolerance"]),
        angular_tolerance=float(values["angular_tolerance"]),
        blocked_after_s=float(values["blocked_after_s"]),
    )


def safety_config(values: dict[str, Value]) -> SafetyConfig:
    """The gate's part of the parameters."""
    linear, angular = float(values["linear_acceleration"]), float(values["angular_acceleration"])
    return SafetyConfig(
        max_linear=float(values["max_linear"]),
        max_angular=float(values["max_angular"]),
        linear_acceleration=linear,
        angular_acceleration=angular,
        linear_deceleration=2 * linear,
        angular_deceleration=2 * angular,
        max_command_s=float(values["max_command_s"]),
        max_frame_age_s=float(values["max_frame_age_s"]),
        odom_timeout_s=float(values["odom_timeout_s"]),
    )


class MotionNode:
    """Shell around MotionCore."""

    def __init__(self) -> None:
        self.node = node = Node("motion_node")
        self._values = declare(node, MOTION)
        self._core = MotionCore(executor_config(self._values), safety_config(self._values))
        follow_changes(node, MOTION, self._values, self._apply)
        self._output = make_output(node, self._values)
        reliable = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
        reliability = ReliabilityPolicy[str(self._values["odom_reliability"]).upper()]
        self._status = node.create_publisher(MotionStatus, "motion_status", reliable)
        node.create_subscription(MotionCommand, "motion_command", self._on_command, reliable)
        node.create_subscription(
            Odometry, "odom", self._on_odometry, QoSProfile(depth=5, reliability=reliability)
        )
        # Steady: a simulated clock that stands still, or a jump of the robot's clock, must not stop the stopping.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        node.create_timer(1 / float(self._values["rate_hz"]), self._tick, clock=steady)
        self._reported_at = -HEARTBEAT_S
        node.get_logger().info("motion_node ready")

    def _apply(self, values: dict[str, Value]) -> None:
        self._core.executor.config = executor_config(values)
        self._core.gate.config = safety_config(values)

    def _on_odometry(self, message: Odometry) -> None:
        self._core.on_odometry(pose_of(message), time.monotonic())

    def _on_command(self, message: MotionCommand) -> None:
        command = command_of(message)
        if command is None:
            self.node.get_logger().warning(f"motion command of unknown kind {message.kind} ignored")
            return
        self._core.on_command(command, time.monotonic())
        if command.kind is not CommandKind.MOVE:
            self._output.stop()
        self._report(time.monotonic())

    def _tick(self) -> None:
        now = time.monotonic()
        self._output.send(self._core.tick(now))
        self._report(now)

    def _report(self, now: float) -> None:
        """Publish what has changed, and the present state now and then."""
        events = self._core.take_events()
        if not events and now - self._reported_at < HEARTBEAT_S:
            return
        self._reported_at = now
        stamp = self.node.get_clock().now().to_msg()
        for status in events or [self._core.status]:
            self._status.publish(status_message(status, stamp))
        for status in events:
            if status.reason and status.state.name in ("BLOCKED", "EXPIRED", "REFUSED", "STALE_ODOM"):
                self.node.get_logger().warning(
                    f"command {status.sequence} {status.state.name}: {status.reason}"
                )

    def close(self) -> None:
        """Send the back-end's stop and make sure that it has arrived."""
        for _ in range(int(self._values["zero_burst"])):
            self._output.stop()
            time.sleep(BURST_PAUSE_S)
        self._output.drain()


def main(args: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run(MotionNode, args)


if __name__ == "__main__":
    sys.exit(main())

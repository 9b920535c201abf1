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
The node that reads a Unitree Go2's own state.

It publishes on `robot_state` whether the robot can carry out motions, and if not, why. It also
publishes odometry from the same messages. It is a thin shell around Go2Watch.
"""

from __future__ import annotations

from collections.abc import Sequence
import sys
import time
from typing import Any

from builtin_interfaces.msg import Time
from nav_msgs.msg import Odometry
from rclpy.node import Node
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.motion.watchdogs import RateMeter
from spec_vlm_nav.robot.go2_state import Go2Watch, Pose3, pose_of, Readiness, sport_state_of
from spec_vlm_nav.robot.parameters import check_go2, go2_config, GO2_STATE
from spec_vlm_nav.ros.basics import Diagnostics, qos, steady_timer, unitree_types
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.loosening import LimitLoosening, StandstillWatch
from spec_vlm_nav.ros.run import run
from spec_vlm_nav.ros.subscriptions import PolledTopic
from spec_vlm_nav_interfaces.msg import RobotState

SAID_HZ = 10.0  # least rate; a change is published at once
BATTERY_HZ = 2.0


class Go2StateNode:
    """ROS shell around Go2Watch."""

    def __init__(self) -> None:
        self.node = node = Node("go2_state_node")
        self._values = values = declare(node, GO2_STATE, check=check_go2)
        kinds = unitree_types("unitree_go", ("SportModeState", "LowState"), "go2_state_node")
        self._watch = Go2Watch(go2_config(values))
        self._rate = RateMeter()
        self._said: Readiness | None = None
        self._has_pose = True
        self._states = node.create_publisher(RobotState, "robot_state", qos("reliable", 1))
        self._odometry = None
        if values["odometry"] == "sportmodestate":
            self._odometry = node.create_publisher(Odometry, "odom", 5)
        self._sport, self._low = (
            PolledTopic(node, kind, topic, values["state_reliability"])
            for kind, topic in zip(kinds, ("sportmodestate", "lowstate"), strict=True)
        )
        guard = LimitLoosening(node, GO2_STATE, values, StandstillWatch(node).why_not).check
        follow_changes(node, GO2_STATE, values, self._apply, check=check_go2, guard=guard)
        Diagnostics(node, self._diagnostic_rows)
        steady_timer(node, 1 / float(values["rate_hz"]), self._hear_sport)
        steady_timer(node, 1 / BATTERY_HZ, self._hear_low)
        steady_timer(node, 1 / SAID_HZ, self._say)
        node.get_logger().info("go2_state_node ready")

    def _apply(self, values: dict[str, Value]) -> None:
        self._watch.config = go2_config(values)

    # -- inputs

    def _hear_sport(self) -> None:
        now = time.monotonic()
        if (message := self._sport.take()) is None:
            return
        state = sport_state_of(message)
        self._rate.tick(now)
        self._watch.hear_sport(state, now)
        self._publish_odometry(pose_of(state), message.stamp)
        self._say_changes()

    def _hear_low(self) -> None:
        if (message := self._low.take()) is not None:
            self._watch.hear_battery(float(message.bms_state.soc), time.monotonic())
            self._say_changes()

    # -- outputs

    def _publish_odometry(self, pose: Pose3 | None, stamp: Any) -> None:
        if self._odometry is None:
            return
        had_pose, self._has_pose = self._has_pose, pose is not None
        if pose is None:
            if had_pose:
                self.node.get_logger().warning(
                    "no odometry: position or attitude in SportModeState is not finite, or its "
                    "quaternion is invalid"
                )
            return
        message = Odometry()
        if self._values["odometry_stamp"] == "message":
            message.header.stamp = Time(sec=stamp.sec, nanosec=stamp.nanosec)
        else:
            message.header.stamp = self.node.get_clock().now().to_msg()
        message.header.frame_id = str(self._values["odom_frame"])
        message.child_frame_id = str(self._values["base_frame"])
        place, turn = message.pose.pose.position, message.pose.pose.orientation
        place.x, place.y, place.z = pose.position
        turn.x, turn.y, turn.z, turn.w = pose.quaternion
        self._odometry.publish(message)

    def _say_changes(self) -> None:
        judged = self._watch.judge(time.monotonic())
        said = self._said
        if said is None or (said.kind, said.doing) != (judged.kind, judged.doing):
            self._publish(judged)

    def _say(self) -> None:
        self._publish(self._watch.judge(time.monotonic()))

    def _publish(self, judged: Readiness) -> None:
        message = RobotState(ready=judged.ready, reason=judged.reason, mode=judged.doing)
        message.header.stamp = self.node.get_clock().now().to_msg()
        message.battery = judged.battery
        self._states.publish(message)
        before, self._said = self._said, judged
        if before is not None and before.kind == judged.kind:
            return
        if not judged.ready:
            self.node.get_logger().warning(f"not ready: {judged.reason}")
        else:
            self.node.get_logger().info(f"ready: the Go2 {judged.doing}")

    def _diagnostic_rows(self) -> list[DiagnosticRow]:
        now = time.monotonic()
        judged, state = self._watch.judge(now), self._watch.state
        values: dict[str, object] = {"battery": judged.battery, "rate_hz": self._rate.hz(now)}
        if state is not None:
            values |= {
                "mode": state.mode,
                "error_code": state.error_code,
                "roll_rad": state.rpy[0],
                "pitch_rad": state.rpy[1],
                "body_height_m": state.body_height,
            }
        level = Level.OK if judged.ready else Level.ERROR
        return [DiagnosticRow("robot", level, judged.reason or f"ready: {judged.doing}", values)]

    def close(self) -> None:
        """Publish nothing more: motion_node treats silence as not ready."""


def main(args: Sequence[str] | None = None) -> int:
    """Entry point."""
    return run(Go2StateNode, args)


if __name__ == "__main__":
    sys.exit(main())

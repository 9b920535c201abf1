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
The parts of mission_node: it turns and drives back by motion commands, and instructs by goals.

Commands to motion_node go in a session of their own for each course. During a course the
CourseDriver sends the heartbeats that motion_node requires of a navigator. The gate watches camera
and odometry as usual. The model and its verifier are not needed.
"""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action import ActionClient
from rclpy.node import Node
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, LinkState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.missions.driving import Driver, DrivingCourse
from spec_vlm_nav.missions.record import MissionStep
from spec_vlm_nav.ros.basics import RELIABLE, steady_timer
from spec_vlm_nav.ros.messages import duration_of
from spec_vlm_nav.ros.session import CommandSession
from spec_vlm_nav_interfaces.action import NavigateInstruction
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision

TICK_S = 0.05
LIFE_TICKS = 2
ACQUAINTED_S = 0.3  # delay before the first command: motion_node must know the session first
DEADLINE_S = 8.0
Done = Callable[[ErrorCode, str, int], None]
ACCEPT_S = 5.0  # silence of a goal counts from its acceptance, or this long after it was sent
LOST = "vlm_nav_node does not know the instruction any more: was it restarted?"


class CourseDriver:
    """Carries out one course at a time."""

    def __init__(self, node: Node, pose: Callable[[], Pose | None]) -> None:
        self._node, self._pose = node, pose
        self._commands = node.create_publisher(MotionCommand, "motion_command", RELIABLE)
        self._life = node.create_publisher(Supervision, "supervision", RELIABLE)
        node.create_subscription(Supervision, "supervision", self._on_supervision, RELIABLE)
        self._driver: Driver | None = None
        self._session, self._ticks = CommandSession(), 0
        self._own: set[int] = set()
        self._heard: tuple[float, Supervision] | None = None  # last heartbeat of vlm_nav_node
        steady_timer(node, TICK_S, self._tick)

    def decider_silent_s(self, now: float) -> float:
        """Return how long vlm_nav_node has been silent, s."""
        return now - self._heard[0] if self._heard else float("inf")

    def drive(self, course: DrivingCourse, done: Callable[[ErrorCode, str], None]) -> None:
        """Carry out a course; `done` is called at its end."""
        self.let_go()
        self._session.begin()
        self._own.add(self._session.number)
        self._give_sign_of_life()
        self._driver = Driver(course, self._send, done, time.monotonic() + ACQUAINTED_S)

    def stand(self, why: str) -> None:
        """Stop the robot if a course is under way."""
        if self._driver is not None:
            self._publish(self._command(MotionCommand.HOLD, why))
        self.let_go()

    def let_go(self) -> None:
        """Drop the course."""
        self._driver = None

    def on_status(self, status: Status) -> None:
        """Handle a report of motion_node."""
        if self._driver is not None and status.session == self._session.number:
            now = time.monotonic()
            self._driver.on_status(status.sequence, status.state, status.reason, now)

    def _tick(self) -> None:
        driver = self._driver
        if driver is None:
            return
        if driver.is_over:
            self.let_go()
            return
        self._ticks += 1
        if self._ticks % LIFE_TICKS == 0:
            self._give_sign_of_life()
        driver.tick(self._pose(), time.monotonic())

    def _on_supervision(self, message: Supervision) -> None:
        if message.session not in self._own:
            self._heard = (time.monotonic(), message)

    def _camera_age_s(self) -> float:
        if self._heard is None or self._heard[1].camera_age_s < 0:
            return -1.0
        return float(self._heard[1].camera_age_s) + time.monotonic() - self._heard[0]

    def _give_sign_of_life(self) -> None:
        life = self._session.introduce(Supervision(camera_age_s=self._camera_age_s()))
        life.header.stamp = self._node.get_clock().now().to_msg()
        # Courses do not depend on the verifier: a lost link must not end a way back.
        life.verifier_age_s, life.link = -1.0, LinkState.UNKNOWN.value
        self._life.publish(life)

    def _send(self, motion: Motion) -> int:
        if motion.angle_rad:
            side = "left" if motion.angle_rad > 0 else "right"
            words = f"turn {side} {abs(motion.angle_rad) * 57.29578:.0f}"
        else:
            words = f"move forward {100 * motion.distance_m:.0f} cm"
        command = self._command(MotionCommand.MOVE, f"{words} (mission)")
        command.distance_m, command.angle_rad = motion.distance_m, motion.angle_rad
        command.deadline = duration_of(DEADLINE_S)
        command.frame_age_s = max(0.0, self._camera_age_s())
        self._publish(command)
        return self._session.sequence

    def _command(self, kind: int, words: str) -> MotionCommand:
        command = MotionCommand(instruction=1, kind=kind, text=words)
        command.header.stamp = self._node.get_clock().now().to_msg()
        command.source = ActionSource.SUPERVISOR.value
        return command

    def _publish(self, command: MotionCommand) -> None:
        self._commands.publish(self._session.sign(command))


class Instructor:
    """Sends an instruction and reports how it ended: code, message, decisions."""

    def __init__(self, node: Node) -> None:
        self._client: Any = ActionClient(node, NavigateInstruction, "navigate_instruction")
        self._number = 0  # number of the current goal; results of others are ignored
        self._handle: Any = None
        self._silent_from: float | None = None  # since when silence counts; None: no goal is under way
        self.feedback: NavigateInstruction.Feedback | None = None

    @property
    def is_there(self) -> bool:
        """Whether an action server is ready."""
        return bool(self._client.server_is_ready())

    def silent_s(self, now: float) -> float:
        """
        Return how long nothing was heard of the instruction under way, s; 0 if there is none.

        A server that was restarted is there, but its goals are gone, and their results never come.
        """
        return 0.0 if self._silent_from is None else max(0.0, now - self._silent_from)

    def give(self, step: MissionStep, done: Done) -> None:
        """Send an instruction; it replaces the previous one."""
        self.drop()
        number, self._silent_from = self._number, time.monotonic() + ACCEPT_S
        goal = NavigateInstruction.Goal(instruction=step.words, success_hint=step.hint)
        goal.time_allowance = duration_of(step.max_s)

        def on_feedback(message: Any) -> None:
            if number == self._number:
                self.feedback, self._silent_from = message.feedback, time.monotonic()

        def on_accepted(future: Any) -> None:
            handle = future.result()
            if number != self._number:  # dropped meanwhile
                handle.cancel_goal_async()
                return
            self._handle, self._silent_from = handle, time.monotonic()
            handle.get_result_async().add_done_callback(on_result)

        def on_result(future: Any) -> None:
            if number != self._number:
                return
            self._handle = self._silent_from = None
            if future.result().status == GoalStatus.STATUS_UNKNOWN:  # its result is empty
                done(ErrorCode.INTERNAL, LOST, 0)
                return
            result = future.result().result
            code, message = ErrorCode(result.error_code), result.error_msg
            if code is ErrorCode.NONE and step.hint and not result.hint_met:
                message = f'the last reasoning does not contain "{step.hint}"'
            done(code, message, int(result.decisions))

        sent = self._client.send_goal_async(goal, feedback_callback=on_feedback)
        sent.add_done_callback(on_accepted)

    def drop(self) -> None:
        """Cancel the goal under way without waiting for its result."""
        self._number += 1
        self.feedback = self._silent_from = None
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel_goal_async()

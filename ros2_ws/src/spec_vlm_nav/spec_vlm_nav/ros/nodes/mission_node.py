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
The node that carries out missions step by step.

Instructions go to vlm_nav_node, turns and ways back to motion_node; this node sends no velocities.
A stop, an emergency stop or the loss of a node pauses the mission. While a mission runs, this node
publishes on `presence`: if the process is killed, motion_node stops the robot. A mission is stored
on disk and waits for `resume` after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import threading
import time
from typing import Any, NoReturn

from nav_msgs.msg import Odometry
from rclpy.action import CancelResponse, GoalResponse
from rclpy.node import Node
from spec_vlm_nav.common.codes import ErrorCode, MotionState
from spec_vlm_nav.common.diagnostics import DiagnosticRow, Level
from spec_vlm_nav.common.errors import LONGEST_LINE, MissionError, one_line
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.common.kept_file import given_path, home
from spec_vlm_nav.common.newest import NewestWorker
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.missions.driving import DrivingCourse
from spec_vlm_nav.missions.parameters import MISSION
from spec_vlm_nav.missions.reading import read
from spec_vlm_nav.missions.record import (
    encode,
    load,
    MissionPhase,
    MissionRecord,
    MissionStep,
    results,
    results_json,
    save,
)
from spec_vlm_nav.missions.run import Mission, StopLatch
from spec_vlm_nav.motion.command import OPERATOR_STOP
from spec_vlm_nav.motion.watchdogs import MISSION as HOLDER
from spec_vlm_nav.ros.basics import DeferringServer, Diagnostics, qos, RELIABLE, steady_timer
from spec_vlm_nav.ros.declare import declare, follow_changes
from spec_vlm_nav.ros.loosening import LimitLoosening, StandstillWatch
from spec_vlm_nav.ros.messages import duration_of, pose_of, status_of
from spec_vlm_nav.ros.missions import CourseDriver, Instructor, LOST
from spec_vlm_nav.ros.run import leave, run
from spec_vlm_nav.ros.subscriptions import subscribe
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.msg import MotionStatus, Presence
from spec_vlm_nav_interfaces.srv import ChangeMission
from std_msgs.msg import Bool, Empty, String

TICK_S = 0.1
TOLD_TICKS = 5
ODOM_S = 1.0
KEPT_S = 0.5  # longest wait for a new mission to reach the disk before it begins
SAVE_S = 4.0  # longest wait for the disk at the end, within END_S of run.py


class MissionNode:
    """ROS shell around Mission; it also implements the mission's outputs."""

    def __init__(self) -> None:
        self.node = node = Node("mission_node")
        self._values = declare(node, MISSION)
        guard = LimitLoosening(node, MISSION, self._values, StandstillWatch(node).why_not).check
        follow_changes(node, MISSION, self._values, lambda _: None, guard=guard)
        self._file = given_path(
            "state_file", str(self._values["state_file"]), lambda: home(node.get_namespace()) / "mission.json"
        )
        self._mission: Mission | None = None
        self._pose: tuple[float, Pose] | None = None
        self._motion_at = -1e9  # when motion_node was last heard
        self._estopped = ""
        self._stops = StopLatch()
        self._ticks, self._is_saved, self._holds = 0, True, False
        # In a thread of its own: heartbeats and stops must not wait for the disk.
        self._saved = threading.Event()
        self._saver: NewestWorker[bytes, str] = NewestWorker(self._save, self._saved.set, "mission file")
        self._told = node.create_publisher(String, "~/mission", qos("reliable", 1, latched=True))
        self._presence = node.create_publisher(Presence, "presence", RELIABLE)
        self._instructor = Instructor(node)
        self._wheels = CourseDriver(node, self._where)
        node.create_subscription(Odometry, "odom", self._on_odometry, qos("best_effort", 5))
        node.create_subscription(MotionStatus, "motion_status", self._on_status, RELIABLE)
        subscribe(node, Empty, "stop", lambda message: self._pause("stop was sent"))
        subscribe(node, Bool, "e_stop", self._on_button, latched=True)
        subscribe(node, String, "instruction", self._on_words)
        self._goal: Any = None  # the client's goal, until its mission has ended
        self._server = DeferringServer(
            node,
            RunMission,
            "run_mission",
            self._on_goal,
            goal_callback=lambda request: GoalResponse.ACCEPT,
            cancel_callback=self._on_cancel,
        )
        node.create_service(ChangeMission, "~/change", self._on_change)
        Diagnostics(node, self._rows)
        self._restore()
        steady_timer(node, TICK_S, self._tick)
        node.get_logger().info("mission_node ready")

    @property
    def _record(self) -> MissionRecord | None:
        return self._mission.record if self._mission is not None else None

    # -- mission commands

    def _on_goal(self, goal: Any) -> None:
        """Begin a client's mission; a second goal ends at once with the reason."""
        self._answer()  # the previous mission may have ended since the last tick: its client waits
        try:
            self._begin(goal.request.mission)
        except MissionError as error:
            refused = RunMission.Result(error_code=ErrorCode.INVALID_INPUT.value)
            refused.error_msg = str(error)
            self._server.finish(goal, refused)
            return
        self._goal = goal
        self._answer()

    def _on_cancel(self, goal: Any) -> CancelResponse:
        if goal != self._goal:
            return CancelResponse.REJECT
        if self._mission is not None:
            self._mission.cancel("canceled by a client")
        return CancelResponse.ACCEPT

    def _answer(self) -> None:
        """Publish feedback to the client, or return the result if the mission has ended."""
        record, goal = self._record, self._goal
        if record is None or goal is None:
            return
        if record.phase is not MissionPhase.ENDED:
            goal.publish_feedback(_feedback(record))
            return
        self._goal = None
        self._server.finish(goal, _result(record))

    def _on_change(
        self, request: ChangeMission.Request, response: ChangeMission.Response
    ) -> ChangeMission.Response:
        try:
            response.message, response.success = self._change(request), True
        except MissionError as error:
            response.message = str(error)
        response.results = results_json(self._record) if self._record is not None else ""
        return response

    def _begin(self, text: str) -> None:
        if self._mission is not None and not self._mission.is_over:
            raise MissionError("a mission is under way: cancel it, or append to it")
        plan = read(text)
        self._mission = Mission.begin(plan, self, time.monotonic(), time.time())
        if (here := self._where()) is not None:  # the first step may begin before the next odometry
            self._mission.on_pose(here)
        self.log(f"mission of {len(plan.steps)} steps")
        self.changed()
        self._keep(self._mission.record)
        self._saved.wait(KEPT_S)  # a client that is told of its mission finds it after a restart
        self._tick()

    def _pause(self, why: str) -> None:
        if self._mission is not None:
            self._mission.pause(one_line(why))  # it may repeat foreign words, and a client shows it

    def _change(self, request: ChangeMission.Request) -> str:
        mission, now = self._mission, time.monotonic()
        if mission is None:
            raise MissionError("there is no mission")
        orders: dict[str, Callable[[], None]] = {
            "pause": lambda: mission.pause("paused by the operator"),
            "resume": lambda: mission.resume(self._objection(now), now),
            "skip": lambda: mission.skip(now),
            "cancel": lambda: mission.cancel("canceled by the operator"),
            "move": lambda: mission.move(request.step, request.place),
            "append": lambda: mission.append(read(request.steps, "steps").steps),
        }
        if request.order not in orders:
            raise MissionError(f'order "{request.order}" is unknown, must be one of {", ".join(orders)}')
        orders[request.order]()
        self._answer()
        return f"{request.order}: mission {mission.record.phase.value}"

    def _objection(self, now: float) -> str:
        """Return why no step could begin now, or ""."""
        if now - self._motion_at > float(self._values["lost_after_s"]):
            return "motion_node is not heard"
        if self._estopped:
            return f"{self._estopped} is latched: reset it first"
        if self._pose is None or now - self._pose[0] > ODOM_S:
            return "no odometry"
        lost = self._wheels.decider_silent_s(now) > float(self._values["lost_after_s"])
        if lost or not self._instructor.is_there:
            return "vlm_nav_node is not heard, or not active"
        return ""

    # -- inputs

    def _where(self) -> Pose | None:
        fresh = self._pose is not None and time.monotonic() - self._pose[0] < ODOM_S
        return self._pose[1] if fresh and self._pose else None

    def _on_odometry(self, message: Odometry) -> None:
        pose = pose_of(message)
        if not pose.is_finite:
            return
        self._pose = (time.monotonic(), pose)
        if self._mission is not None:
            self._mission.on_pose(pose)

    def _on_status(self, message: MotionStatus) -> None:
        status = status_of(message)
        if status is None:
            return
        self._motion_at = time.monotonic()
        self._estopped = (status.held_by or "e-stop") if status.estopped else ""
        if self._estopped:
            self._pause(self._estopped)
        by_hand = status.state is MotionState.STOPPED and status.reason == OPERATOR_STOP
        if self._stops.is_new(by_hand, status.since):
            self._pause(OPERATOR_STOP)
        self._wheels.on_status(status)

    def _on_button(self, message: Bool) -> None:
        if message.data:
            self._pause("e-stop")

    def _on_words(self, message: String) -> None:
        said = message.data[:60]
        self._pause(f'stop word "{said}"' if is_stop(message.data) else f'another instruction: "{said}"')

    def _tick(self) -> None:
        mission, now = self._mission, time.monotonic()
        self._ticks += 1
        if mission is not None and not mission.is_over:
            objection = self._objection(now)
            if mission.record.phase is MissionPhase.RUNNING and "not heard" in objection:
                mission.pause(objection)
            if self._instructor.silent_s(now) > float(self._values["lost_after_s"]):
                mission.pause(LOST)
            clock = time.localtime()
            mission.tick(now, 60 * clock.tm_hour + clock.tm_min, objection)
            if self._ticks % TOLD_TICKS == 0:
                self.changed()
        self._hold(mission is not None and mission.record.phase is MissionPhase.RUNNING)
        if not self._is_saved and self._record is not None:
            self._keep(self._record)
        if (saved := self._saver.take()) is not None:
            self._tell_trouble(saved[0])
        self._answer()

    def _hold(self, holds: bool) -> None:
        if holds or self._holds:
            self._presence.publish(
                Presence(holder=self.node.get_fully_qualified_name(), kind=HOLDER, holds=holds)
            )
        self._holds = holds

    # -- outputs of the mission

    def instruct(self, token: int, step: MissionStep) -> None:
        """Send an instruction."""

        def done(code: ErrorCode, message: str, decisions: int) -> None:
            if self._mission is not None:
                self._mission.on_result(token, code, one_line(message), time.monotonic(), decisions)

        self._instructor.give(step, done)

    def drive(self, token: int, course: DrivingCourse) -> None:
        """Carry out a course."""

        def done(code: ErrorCode, message: str) -> None:
            if self._mission is not None:
                self._mission.on_result(token, code, one_line(message), time.monotonic())

        self._wheels.drive(course, done)

    def stand(self, why: str) -> None:
        """End the step under way; the robot stands."""
        self._instructor.drop()
        self._wheels.stand(why)

    def changed(self) -> None:
        """Publish the mission, and save it at the next tick."""
        self._is_saved = False
        if self._record is not None:
            self._told.publish(String(data=results_json(self._record)))

    def log(self, text: str) -> None:
        """Log a message for the operator."""
        self.node.get_logger().info(one_line(text, LONGEST_LINE))  # it may repeat foreign words

    # -- storage

    def _keep(self, record: MissionRecord) -> None:
        """Have a mission written."""
        self._is_saved = True
        self._saved.clear()
        self._saver.put(encode(record), 0.0)

    def _save(self, data: bytes) -> str:
        """Write an encoded mission; returns why it cannot be, or ""."""
        try:
            save(data, self._file)
        except OSError as error:
            return str(error)
        return ""

    def _tell_trouble(self, trouble: str) -> None:
        if trouble:
            self.node.get_logger().warning(
                f"the mission cannot be saved and would be lost at a restart: {trouble}",
                throttle_duration_sec=60.0,
            )

    def _restore(self) -> None:
        try:
            record = load(self._file)
        except (ValueError, OSError) as error:
            bad, then = self._file.with_suffix(".bad"), ""
            if self._file.is_file():
                try:
                    self._file.replace(bad)
                    then = f"; kept as {bad}"
                except OSError as failure:
                    then = f"; it cannot be kept as {bad} ({failure.strerror}), the next mission replaces it"
            self.node.get_logger().error(one_line(f"{error}{then}", LONGEST_LINE))
            return
        if record is not None and record.phase is not MissionPhase.ENDED:
            self._mission = Mission.restored(record, self, time.monotonic())
            said = one_line(f"mission {record.plan.name}: {record.why}")
            self.node.get_logger().warning(said)
            self.changed()

    def _rows(self) -> list[DiagnosticRow]:
        record = self._record
        if record is None:
            return [DiagnosticRow("mission", Level.OK, "none")]
        words = ": ".join(part for part in (record.phase.value, record.why) if part)
        item = record.current
        values = {"step": item.step.shown if item else "", "steps": len(record.items)}
        level = Level.WARN if record.phase is MissionPhase.PAUSED else Level.OK
        return [DiagnosticRow("mission", level, words, values)]

    def close(self) -> None:
        """Pause the mission: the robot stands, and the mission can be resumed later."""
        self._pause("mission_node ends")
        self._hold(False)
        if not self._saver.close(SAVE_S):
            self._tell_trouble(f"{self._file}: the disk has not answered for {SAVE_S:g} s")
        elif self._record is not None:
            self._tell_trouble(self._save(encode(self._record)))


def _result(record: MissionRecord) -> RunMission.Result:
    """Return a mission's result as a message."""
    told = results(record)
    message = RunMission.Result(error_code=ErrorCode[record.code].value, error_msg=record.why)
    message.total_elapsed_time = duration_of(record.elapsed_s)
    message.distance_m = record.distance_m
    message.steps_done, message.steps_failed = told["done"], told["failed"]
    message.steps_skipped, message.results = told["skipped"], results_json(record)
    return message


def _feedback(record: MissionRecord) -> RunMission.Feedback:
    message = RunMission.Feedback(phase=record.phase.value, why=record.why)
    message.steps = len(record.items)
    message.steps_over = sum(item.is_over for item in record.items)
    if (item := record.current) is not None:
        message.step, message.doing = item.number, item.step.shown
    return message


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point."""
    leave(run(MissionNode, args))


if __name__ == "__main__":
    main()

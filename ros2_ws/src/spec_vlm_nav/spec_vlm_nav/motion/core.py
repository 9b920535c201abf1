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
The core of motion_node as one object without ROS.

Its inputs are commands and sensor messages; its outputs are a velocity per tick and status reports.

It joins the executor (how to move) and the gate (whether to move at all). `MotionLoop` decides when
the outputs are sent; `motion_node` adds no logic to either.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import math

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION, Pose, Velocity, ZERO
from spec_vlm_nav.common.status import Status, UNDER_WAY
from spec_vlm_nav.motion.ahead.collision import Clearance
from spec_vlm_nav.motion.command import Command, CommandKind, OPERATOR_STOP
from spec_vlm_nav.motion.executor import Executor, ExecutorConfig, MotionExecutor, NO_PROGRESS
from spec_vlm_nav.motion.gate import fault_of, SafetyGate
from spec_vlm_nav.motion.latches import Latches
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.response.comparing import DeviationKind, Discrepancy
from spec_vlm_nav.motion.stopping import RestDetector
from spec_vlm_nav.motion.watchdogs import Fault, OdometryReading, Supervision

LONGEST_STALL_S = 1.0  # between two ticks
OURS_S = 10.0  # for this long after a command an uncommanded movement is reported


def _left(motion: Motion, done: Motion) -> Motion:
    """Return the remaining motion: metres for a drive, radians for a turn; the other is 0."""
    if motion.angle_rad:
        return Motion(0.0, motion.angle_rad - done.angle_rad)
    return Motion(motion.distance_m - done.distance_m, 0.0)


class MotionCore:
    """Executor and gate of one robot."""

    def __init__(
        self,
        config: ExecutorConfig | None = None,
        safety: SafetyConfig | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.executor: Executor = executor or MotionExecutor()
        self.gate = SafetyGate(self._watched(safety or SafetyConfig()))
        self.status = Status(MotionState.IDLE)
        self.ended: Counter[str] = Counter()  # motions by the state that ended them
        self._config = config or ExecutorConfig()
        self._command: Command | None = None
        self._events: list[Status] = []
        self._is_being_moved = self._is_pushed = False
        self._orders = 0  # count of the operator's stops, e-stops and resets
        self._ticked_at = -math.inf
        self._last_about: tuple[Command, float] | None = None  # the last command and its time
        self._set_speeds()

    def configure(self, config: ExecutorConfig, safety: SafetyConfig) -> None:
        """Apply changed limits, also to the motion under way."""
        self._config, self.gate.config = config, self._watched(safety)
        self._set_speeds()

    def _watched(self, safety: SafetyConfig) -> SafetyConfig:
        """Return the limits, with response_watched off if the executor sends no velocities."""
        watched = safety.response_watched and self.executor.sends_velocities
        return replace(safety, response_watched=watched)

    def _set_speeds(self) -> None:
        fastest = self.gate.fastest(self._command)
        self.executor.config = replace(
            self._config,
            linear_speed=min(self._config.linear_speed, fastest.linear),
            angular_speed=min(self._config.angular_speed, fastest.angular),
        )

    def restore(self, kept: Latches) -> None:
        """Restore the latches of an earlier process."""
        self.gate.restore(kept)
        if kept.estopped_by:
            self._stand(self._latest(), kept.estopped_by)

    @property
    def is_moving(self) -> bool:
        """Whether a command is being carried out."""
        return self._command is not None

    @property
    def state_key(self) -> tuple[object, ...]:
        """
        Return a key that stays equal as long as a state lasts, however often it is reported.

        A STOP from the navigator during an operator's stop does not change the key.
        """
        status = self.status
        is_by_hand = status.state is MotionState.STOPPED and status.reason == OPERATOR_STOP
        about = self._orders if is_by_hand else (status.session, status.sequence)
        return status.state, status.reason, about

    def take_events(self) -> list[Status]:
        """Return the status changes since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def on_odometry(self, reading: OdometryReading | Pose, now: float) -> None:
        """Handle odometry received now."""
        self.gate.hear_odometry(reading, now)
        # Not left to the tick: the next message may arrive before it and be valid again.
        self._end_on_fault(now)
        if self._command is None:
            self._look_for_pushes(now)
        elif fault := self.gate.fault_under_way(self._command, now):
            self._end(fault.state, self._command, fault.reason, now)
        else:
            self._set_speeds()

    def _look_for_pushes(self, now: float) -> None:
        """Report once that the robot moves without a command, within OURS_S of the last command."""
        moved = self.gate.monitor.uncommanded(now)
        was, self._is_being_moved = self._is_being_moved, moved is not None
        if moved is None or was or self._last_about is None:
            return
        about, at = self._last_about
        if now - at <= OURS_S:
            fault = fault_of(moved)
            self._is_pushed = True
            self._report(fault.state, about, fault.reason)

    def take_pushed(self) -> bool:
        """Return whether an uncommanded movement was reported since the last call."""
        pushed, self._is_pushed = self._is_pushed, False
        return pushed

    def on_robot_state(self, ready: bool, reason: str, now: float) -> None:
        """Handle the robot's report of its own readiness."""
        self.gate.readiness.hear(ready, reason, now)
        self._end_on_fault(now)

    def on_supervision(self, told: Supervision, now: float) -> None:
        """Handle a heartbeat of the navigator."""
        self._mind_silence(now)
        self.gate.supervision.tell(told, now)
        self._end_on_fault(now)

    def on_clearance(self, clearance: Clearance, now: float) -> None:
        """Handle a message of the collision sensor."""
        self.gate.ahead.hear(clearance, now)
        self._end_on_fault(now)

    def on_command(self, command: Command, now: float, unproven: str = "") -> None:
        """Carry out a command or refuse it with a reason; unproven: see SafetyGate.admit."""
        self._mind_silence(now)
        refused = self.gate.admit(command, now, unproven)
        if not unproven:
            self._last_about = (command, now)
        if command.kind is not CommandKind.MOVE:
            # Even a late or foreign STOP ends the motion under way.
            by_hand = self.gate.latched_by == OPERATOR_STOP
            reason = OPERATOR_STOP if by_hand else command.text or command.kind.name
            self._stand(command if refused is None or self._command is None else self._command, reason)
            return
        if refused is not None:
            if self._command is not None and not self.gate.has_motion:
                self._stand(self._command, "a newer command arrived and was refused")
            status = Status(refused.state, command.session, command.sequence, refused.reason)
            self._events.append(replace(status, left=command.motion, unverified=command.unverified))
            return
        pose = self.gate.pose
        assert pose is not None  # the gate admits nothing without odometry
        self._command = command
        self._set_speeds()
        self.executor.start(command.motion, pose, now, self.gate.time_left_s(now))
        self._report(MotionState.MOVING, command, command.text)

    def stop(self) -> None:
        """Stop on the operator's order, until the next instruction."""
        self._orders += 1
        self.gate.stop()
        self._stand(self._command or self._latest(), OPERATOR_STOP)

    def lost_presence(self, now: float) -> str:
        """Return which holder of the dead man's switch fell silent, or ""."""
        config = self.gate.config
        return self.gate.presence.lost(now, config.presence_timeout_s, config.require_operator)

    def estop(self, reason: str) -> None:
        """Stop until `reset`; new instructions do not lift it."""
        self._orders += 1
        was_latched = bool(self.gate.estopped_by)
        self.gate.estop(reason)
        if self._command is not None or not was_latched:
            self._stand(self._command or self._latest(), reason)

    def reset(self) -> str:
        """Clear the e-stop and lost odometry; returns in words what was cleared."""
        self._orders += 1
        was = self.gate.reset()
        self._stand(self._latest(), OPERATOR_STOP)
        return " and ".join(was)

    def _latest(self) -> Command:
        """Return a stand-in command for reports while no command is under way."""
        return Command(CommandKind.STOP, self.gate.session or 0, 0, self.gate.sequence)

    def _stand(self, about: Command, reason: str) -> None:
        done = self._done() if self._command is not None else NO_MOTION
        self.executor.cancel()
        self._command = None
        if self.gate.estopped_by:
            self._report(MotionState.ESTOPPED, about, self.gate.held_by, done)
        else:
            self._report(MotionState.STOPPED, about, reason, done)

    def as_of(self, now: float, status: Status) -> Status:
        """Return a report with the robot's present state filled in."""
        gate = self.gate
        return replace(
            status,
            standing=self.stands(now),
            estopped=bool(gate.estopped_by),
            held_by=gate.held_by,
            rear_free_m=gate.rear_free_m(now),
        )

    def stands(self, now: float) -> bool:
        """Return whether odometry shows that the robot stands and no command is under way."""
        return self._command is None and self.gate.monitor.stands(now)

    def rest(self, now: float) -> RestDetector:
        """Return whether odometry shows the robot standing or still moving without a command."""
        if self._command is not None:
            return RestDetector.UNKNOWN
        if self.gate.monitor.resists(now):
            return RestDetector.RESISTS
        return RestDetector.STANDS if self.gate.monitor.stands(now) else RestDetector.UNKNOWN

    def tick(self, now: float) -> Velocity:
        """Return the velocity to publish now."""
        self._mind_own_stall(now)
        self._end_on_fault(now)
        pose, command = self.gate.pose, self._command
        if command is None or pose is None:
            return self.gate.filter(ZERO, now)
        if self.gate.deadline_passed(now):
            return self._finish(MotionState.EXPIRED, "deadline passed", command, now)
        coming = self.gate.monitor.in_flight(now)
        wanted, state = self.executor.update(pose, now, Motion(coming.along_m, coming.turned_rad))
        if state not in UNDER_WAY:
            return self._finish(state, self.executor.reason, command, now)
        if state is not self.status.state:
            self._report(state, command, command.text, self._done())
        done = self._done()
        self.status = replace(self.status, done=done, left=_left(command.motion, done))
        return self.gate.filter(wanted, now)

    def _finish(self, state: MotionState, reason: str, command: Command, now: float) -> Velocity:
        """End a motion by the executor's report or the deadline, and choose the state to report."""
        gate = self.gate
        stuck = state is MotionState.BLOCKED and reason == NO_PROGRESS
        failed = state in (MotionState.BLOCKED, MotionState.EXPIRED)
        if gate.config.response_watched and (stuck or (failed and gate.monitor.overdue(now))):
            fault = gate.conclude(Discrepancy(DeviationKind.NONE, reason))
            state, reason = fault.state, fault.reason
        elif self.status.state is MotionState.SETTLING and (found := gate.monitor.verdict(now)):
            fault = gate.conclude(found)
            state, reason = fault.state, fault.reason
        return self._end(state, command, reason, now)

    def _fault(self, command: Command, now: float) -> Fault | None:
        return self.gate.fault(command, now) or self.gate.fault_ahead(command, now)

    def _end_on_fault(self, now: float) -> None:
        self._mind_silence(now)
        if self._command is not None and (fault := self._fault(self._command, now)):
            self._end(fault.state, self._command, fault.reason, now)

    def _mind_silence(self, now: float) -> None:
        if (fault := self.gate.silence(now)) and self._command is not None:
            self._end(fault.state, self._command, fault.reason, now)

    def _mind_own_stall(self, now: float) -> None:
        """End the motion if this process stalled: nothing watched it meanwhile."""
        stalled_s, self._ticked_at = now - self._ticked_at, now
        if self._command is not None and LONGEST_STALL_S < stalled_s < math.inf:
            reason = f"motion_node itself stalled for {stalled_s:.1f} s"
            self._end(MotionState.EXPIRED, self._command, reason, now)

    def _done(self) -> Motion:
        if self.gate.odometry_watch.is_broken:
            return self.status.done  # a pose after a jump does not tell how far the robot has come
        return self.executor.done(self.gate.pose) if self.gate.pose else NO_MOTION

    def _end(self, state: MotionState, command: Command, reason: str, now: float) -> Velocity:
        done = self._done()
        self.executor.cancel()
        self.gate.end_motion(state is MotionState.REACHED)
        self._command = None
        self._report(state, command, reason, done)
        return self.gate.filter(ZERO, now)

    def _report(self, state: MotionState, command: Command, reason: str, done: Motion = NO_MOTION) -> None:
        left = _left(command.motion, done)
        self.status = Status(state, command.session, command.sequence, reason, done, left, command.unverified)
        self._events.append(self.status)
        if state not in UNDER_WAY:
            self.ended[state.name] += 1

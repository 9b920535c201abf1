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
The last gate before the wheels: a command that fails a check here never moves the robot.

It answers two questions: may this COMMAND be carried out (`admit`), and what VELOCITY may go out
now (`filter`)? Time is passed in and is always receive time on a steady clock; it is never compared
with other machines' stamps. A stop from any sender is obeyed.
"""

from __future__ import annotations

from collections import Counter
import math

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose, Velocity, ZERO
from spec_vlm_nav.motion.ahead.collision import AheadWatch
from spec_vlm_nav.motion.command import Command, CommandKind, OPERATOR_STOP, SILENT
from spec_vlm_nav.motion.geofence import Geofence
from spec_vlm_nav.motion.latches import Latches
from spec_vlm_nav.motion.limits import SafetyConfig, slew
from spec_vlm_nav.motion.rear import RearWatch
from spec_vlm_nav.motion.response.comparing import DeviationKind, Discrepancy
from spec_vlm_nav.motion.response.monitor import ResponseMonitor
from spec_vlm_nav.motion.watchdogs import (
    Fault,
    OdometryReading,
    OdometryWatch,
    PresenceWatch,
    ReadinessWatch,
    SupervisionWatch,
)

PATIENCE_AT_REST = 2  # times supervisor_timeout_s: silence is less urgent while nothing moves
EDGE_M = 0.05  # within this distance of the geofence a motion ends
MOST_RETIRED = 10_000  # replaced sessions to remember; bounds memory against a flood of new ones


_STATE_OF = {
    DeviationKind.NONE: MotionState.NO_RESPONSE,
    DeviationKind.WRONG: MotionState.WRONG_RESPONSE,
    DeviationKind.UNCOMMANDED: MotionState.UNCOMMANDED_MOTION,
}


def fault_of(discrepancy: Discrepancy) -> Fault:
    """Return the fault that reports a discrepancy between commanded and measured motion."""
    return Fault(_STATE_OF[discrepancy.kind], discrepancy.reason)


def _refused(kind: str, reason: str) -> Fault:
    return Fault(MotionState.REFUSED, reason, kind)


class SafetyGate:
    """Sequence numbers, latches, watchdogs and limits of one robot."""

    def __init__(self, config: SafetyConfig | None = None) -> None:
        self._config = config or SafetyConfig()
        self.odometry_watch = OdometryWatch()
        self.supervision = SupervisionWatch()
        self.readiness = ReadinessWatch()
        self.presence = PresenceWatch()
        self.ahead = AheadWatch()
        self.rear = RearWatch()
        self.fence = Geofence()
        self.monitor = ResponseMonitor(self._config)
        self.estopped_by = ""  # why the emergency stop is latched; "": not latched
        self.refusals: Counter[str] = Counter()
        self.session: int | None = None
        self.sequence = 0
        self._retired: dict[int, None] = {}  # in order of retirement
        self._fenced: tuple[int, int] | None = None  # session and instruction of the geofence
        self._instruction = 0
        self._latched: int | None = None  # the instruction that a stop ended
        self._latched_by = ""
        self._moving: Command | None = None  # None: nothing may move
        self._deadline = 0.0
        self._sent = ZERO
        self._sent_at: float | None = None

    @property
    def config(self) -> SafetyConfig:
        """Limits and timeouts in force."""
        return self._config

    @config.setter
    def config(self, config: SafetyConfig) -> None:
        self._config = self.monitor.config = config

    @property
    def held_by(self) -> str:
        """Why the robot may not move until an operator acts, or ""."""
        if self.estopped_by:
            return f"e-stop: {self.estopped_by}"
        return self.monitor.held_by or self.latched_by

    @property
    def latched_by(self) -> str:
        """
        Return what holds the robot until the next instruction.

        It is "STOP", OPERATOR_STOP, a text that begins with SILENT, or "" for nothing.
        """
        return self._latched_by if self._latched is not None else ""

    def stop(self) -> None:
        """Latch the operator's stop: nothing moves until the next instruction."""
        self.end_motion()
        self._latched, self._latched_by = self._instruction, OPERATOR_STOP

    def estop(self, reason: str) -> None:
        """Latch the emergency stop: nothing moves until `reset`, even with new instructions."""
        self.end_motion()
        self.estopped_by = self.estopped_by or reason

    def reset(self) -> list[str]:
        """
        Clear, on the operator's order, the e-stop and lost odometry; returns them in words.

        Nothing moves before the next instruction.
        """
        was = [f"the e-stop ({self.estopped_by})"] if self.estopped_by else []
        if self.monitor.lost is not None:
            was.append(f"odometry ({self.monitor.lost.reason})")
        self.estopped_by = ""
        self.monitor.reset()
        self.monitor.liveness.forgive()
        self.odometry_watch.reset()
        self.rear.forget()
        self.stop()
        return was

    @property
    def latches(self) -> Latches:
        """Return the latches that must survive a restart of this process."""
        lost, wrong, shut = self.monitor.memory
        middle = self.fence.middle
        return Latches(
            self.estopped_by,
            None if lost is None else (lost.kind.name, lost.reason),
            wrong,
            shut,
            self.session,
            self._instruction,
            self._latched,
            self._latched_by if self._latched is not None else "",
            None if middle is None or self._fenced is None else (middle.x, middle.y, middle.yaw),
        )

    def restore(self, kept: Latches) -> None:
        """Restore the latches of an earlier process."""
        self.estopped_by = kept.estopped_by
        lost = None
        if kept.lost is not None:
            kind, reason = kept.lost
            # An unknown kind (of another release) counts as WRONG, which only an operator clears.
            lost = Discrepancy(DeviationKind.__members__.get(kind, DeviationKind.WRONG), reason)
        self.monitor.restore(lost, kept.wrong, kept.shut)
        self.session = self.supervision.in_charge = kept.session
        self._instruction = kept.instruction
        self._latched, self._latched_by = kept.latched, kept.latched_by
        if kept.session is not None:
            self._fenced = (kept.session, kept.instruction)
            self.fence.begin(None if kept.fence is None else Pose(*kept.fence))

    def admit(self, command: Command, now: float, unproven: str = "") -> Fault | None:
        """
        Check a command; returns None if it may be carried out, else the reason.

        STOP and HOLD always end the motion, even if they are refused otherwise. A MOVE that is in
        order ends the previous motion, even if it is itself refused.
        unproven: why the command is not proven to come from its session's sender, or ""; an
        unproven command changes no other state.
        """
        if command.kind is not CommandKind.MOVE:
            self.end_motion()
        refusal = self._out_of_order(command)
        if refusal is None and unproven:
            refusal = _refused("proof", unproven)
            if command.session == self.session:
                self.end_motion()  # another client uses this session: stand until a proven command
        elif refusal is None:
            refusal = self._admit_in_order(command, now)
        if refusal is not None:
            self.refusals[refusal.kind or refusal.state.name] += 1
        return refusal

    def _admit_in_order(self, command: Command, now: float) -> Fault | None:
        if command.session != self.session:
            if self.session is not None:
                self._retired[self.session] = None
                if len(self._retired) > MOST_RETIRED:
                    del self._retired[next(iter(self._retired))]
            # Instructions count from 1: only an instruction of this session lifts an operator's stop.
            self._latched = 0 if self.latched_by == OPERATOR_STOP else None
            self.session = self.supervision.in_charge = command.session
        self.supervision.hear(command.session, now)
        if (command.session, command.instruction) != self._fenced:
            self._fenced = (command.session, command.instruction)
            self.fence.begin(self.pose)
        self.sequence, self._instruction = command.sequence, command.instruction
        if self._latched is not None and command.instruction > self._latched:
            self._latched = None
        if command.kind is CommandKind.STOP:
            self._latched, self._latched_by = command.instruction, self.latched_by or "STOP"
        if command.kind is not CommandKind.MOVE:
            return None
        self.end_motion()
        refusal = self._unfit(command, now)
        if refusal is None:
            self._moving = command
            self._deadline = now + min(command.deadline_s, self.config.max_command_s)
            self.monitor.begin(command.motion, now)
        return refusal

    def _out_of_order(self, command: Command) -> Fault | None:
        if command.session in self._retired:
            return _refused("order", "its session was replaced by another one")
        if command.session != self.session:
            return None
        if command.sequence <= self.sequence:
            return _refused("order", f"sequence {command.sequence} is not after {self.sequence}")
        if command.instruction < self._instruction:
            over = f"instruction {command.instruction} is over, now at {self._instruction}"
            return _refused("order", over)
        return None

    def _unfit(self, command: Command, now: float) -> Fault | None:
        c, motion = self.config, command.motion
        numbers = (motion.distance_m, motion.angle_rad, command.deadline_s, command.frame_age_s)
        if not all(math.isfinite(n) for n in numbers):
            return _refused("no number", "the command contains NaN or infinity")
        if c.dry_run:
            return _refused("dry run", "dry_run is true: nothing moves")
        if self.estopped_by:
            return Fault(MotionState.ESTOPPED, self.held_by, "e-stop")
        if self._latched is not None:
            return _refused("latched", f"{self.latched_by} is latched until the next instruction")
        if (motion.distance_m == 0) == (motion.angle_rad == 0):
            return _refused("no motion", "a motion is either a distance or an angle")
        if abs(motion.distance_m) > c.max_distance or abs(motion.angle_rad) > c.max_angle:
            longest = f"{c.max_distance:g} m, {math.degrees(c.max_angle):.0f} degrees"
            return _refused("too long", f"longer than the limit of one command ({longest})")
        if command.deadline_s <= 0:
            return _refused("deadline", "its deadline has passed")
        if not 0 <= command.frame_age_s <= c.max_frame_age_s:
            age = command.frame_age_s
            old = f"decided from a frame {age:.1f} s old, limit {c.max_frame_age_s:g} s"
            return _refused("frame age", old)
        return (
            self.fault(command, now) or self.fault_ahead(command, now) or self._fault_at_start(command, now)
        )

    def _fault_at_start(self, command: Command, now: float) -> Fault | None:
        """Return why a motion may not begin here; these checks do not end one under way."""
        if (moved := self.monitor.uncommanded(now)) is not None:
            return fault_of(moved)
        motion, pose = command.motion, self.pose
        if pose is not None and (reason := self.fence.objection(pose, motion, self.config.geofence_m)):
            return Fault(MotionState.GEOFENCE, reason)
        if command.is_backward and -motion.distance_m > (free := self.rear_free_m(now)) + 1e-3:
            return Fault(
                MotionState.REFUSED,
                f"backward {-motion.distance_m:.2f} m, but only {free:.2f} m behind are known to be free",
            )
        return None

    def rear_free_m(self, now: float) -> float:
        """Return how far the robot may drive straight back, m."""
        seen = self.ahead.free_behind_m(now, self.config)
        driven = self.rear.free_m(now, self.config) if self.monitor.is_proven else 0.0
        return max(seen, driven)

    def hear_odometry(self, heard: OdometryReading | Pose, now: float) -> None:
        """Record an odometry message or a bare pose."""
        reading = heard if isinstance(heard, OdometryReading) else OdometryReading(heard)
        if self.odometry_watch.hear(reading, now, self.config):
            self.monitor.hear(reading.pose, now)
            self.rear.hear(reading.pose, now)
            self.fence.hear(reading.pose)
        elif self.odometry_watch.is_broken:
            self.monitor.jumped()
            self.rear.forget()

    @property
    def pose(self) -> Pose | None:
        """Return the latest finite pose."""
        return self.odometry_watch.pose

    def fault(self, command: Command, now: float) -> Fault | None:
        """
        Return the first fault of the inputs that this command depends on.

        Obstacles ahead are checked by `fault_ahead`.
        """
        c, session = self.config, command.session
        if self.estopped_by:
            return Fault(MotionState.ESTOPPED, self.held_by)
        if reason := self.presence.fault(c.require_operator):
            return Fault(MotionState.SUPERVISOR_LOST, reason)
        if reason := self.readiness.fault(now, c):
            return Fault(MotionState.NOT_READY, reason)
        if reason := self.odometry_watch.fault(now, c):
            return Fault(MotionState.STALE_ODOM, reason)
        if (stuck := self.monitor.objection(command.motion)) is not None:
            return fault_of(stuck)
        if reason := self.ahead.blind(now, c):
            return Fault(MotionState.STALE_SENSOR, reason)
        if reason := self.supervision.supervisor_fault(session, now, c):
            return Fault(MotionState.SUPERVISOR_LOST, reason)
        if reason := self.supervision.camera_fault(session, now, c):
            return Fault(MotionState.STALE_CAMERA, reason)
        if not command.unverified and (reason := self.supervision.verifier_fault(session, now, c)):
            return Fault(MotionState.LINK_LOST, reason)
        return None

    def fault_ahead(self, command: Command, now: float) -> Fault | None:
        """Return why the robot may not drive on: an obstacle ahead is too near."""
        if not command.is_forward or not (reason := self.ahead.fault(now, self.config)):
            return None
        return Fault(MotionState.COLLISION_AHEAD, reason)

    def fault_under_way(self, command: Command, now: float) -> Fault | None:
        """Return the fault that the last pose shows in the motion; call it once per pose."""
        pose = self.pose
        if pose is not None and command.motion.distance_m:
            onward = Motion(math.copysign(EDGE_M, command.motion.distance_m))
            if reason := self.fence.objection(pose, onward, self.config.geofence_m):
                return Fault(MotionState.GEOFENCE, reason)
        found = self.monitor.discrepancy(now)
        return None if found is None else self.conclude(found)

    def conclude(self, found: Discrepancy) -> Fault:
        """Record a discrepancy and return the fault to report."""
        met_something = found.kind is DeviationKind.NONE and self.monitor.is_answered
        self.monitor.blame(found)
        if met_something and self.monitor.lost is None:
            asked = "" if "blocked by an obstacle" in found.reason else ": blocked by an obstacle?"
            return Fault(MotionState.BLOCKED, found.reason + asked)
        return fault_of(found)

    def silence(self, now: float) -> Fault | None:
        """
        Latch if the session in charge is silent for too long; returns the fault when it latches.

        Commands decided before the navigator hung or was suspended must not move the robot after it
        resumes. Call it before handling the next message: messages may have waited in a queue.
        """
        timeout_s, silent_s = (
            self.config.supervisor_timeout_s,
            self.supervision.silent_for_s(self.session, now),
        )
        patience = 1 if self.has_motion else PATIENCE_AT_REST
        if self._latched is not None or self.session is None or not timeout_s:
            return None
        if not patience * timeout_s < silent_s < math.inf:
            return None
        reason = f"{SILENT} for {silent_s:.2f} s"
        self._latched, self._latched_by = self._instruction, reason
        return Fault(MotionState.SUPERVISOR_LOST, reason)

    def end_motion(self, reached: bool = False) -> None:
        """Let nothing move until the next admitted MOVE; reached: the motion was completed."""
        self._moving = None
        self.monitor.end(reached)

    @property
    def has_motion(self) -> bool:
        """Whether an admitted MOVE is under way."""
        return self._moving is not None

    def time_left_s(self, now: float) -> float:
        """
        Return the seconds to the deadline of the motion under way.

        It is 0 if there is no motion or the deadline has passed.
        """
        return 0.0 if self._moving is None else max(0.0, self._deadline - now)

    def deadline_passed(self, now: float) -> bool:
        """Whether a motion is under way and its deadline has passed."""
        return self._moving is not None and now >= self._deadline

    def filter(self, wanted: Velocity, now: float) -> Velocity:  # noqa: A003
        """Return the velocity to send now: zero at once on any fault, else clamped and slewed."""
        # After a stalled timer the step must not become large.
        dt = 0.0 if self._sent_at is None else min(0.1, max(0.0, now - self._sent_at))
        self._sent_at = now
        command = self._moving
        if (
            command is None
            or now >= self._deadline
            or self._latched is not None
            or self.fault(command, now) is not None
            or self.fault_ahead(command, now) is not None
            or not (math.isfinite(wanted.linear) and math.isfinite(wanted.angular))
        ):
            self._sent = ZERO
            self.monitor.sent(ZERO, now)
            return ZERO
        c, fastest = self.config, self.fastest(command)
        linear = max(-fastest.linear, min(fastest.linear, wanted.linear))
        angular = max(-fastest.angular, min(fastest.angular, wanted.angular))
        self._sent = Velocity(
            slew(self._sent.linear, linear, c.linear_acceleration, c.linear_deceleration, dt),
            slew(self._sent.angular, angular, c.angular_acceleration, c.angular_deceleration, dt),
        )
        self.monitor.sent(self._sent, now)
        return self._sent

    def fastest(self, command: Command | None) -> Velocity:
        """Return the present limits of both speeds for a command, as positive numbers."""
        unverified = command is not None and command.unverified
        return self.config.fastest(unverified, not self.monitor.is_answered)

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
The last gate before the wheels: what does not pass every check here does not move the robot.

Two questions: may this COMMAND be carried out at all (`admit`), and what VELOCITY may go out now
(`filter`)? Time is passed in and is always receive time on a steady clock; stamps of other
machines are never compared with it. A stop is obeyed whoever says it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.collision import AheadConfig, AheadWatch
from spec_vlm_nav.executor import Motion, NO_MOTION, Pose, Velocity, ZERO
from spec_vlm_nav.status import MotionState
from spec_vlm_nav.watchdogs import Fault, OdometryWatch, SupervisionWatch, WatchdogConfig

OPERATOR_STOP = 'stopped by the operator'


class CommandKind(enum.Enum):
    """STOP latches until the next instruction; HOLD only stands still; MOVE moves."""

    STOP = 0
    HOLD = 1
    MOVE = 2


@dataclass(frozen=True)
class Command:
    """A motion command as received (see MotionCommand.msg)."""

    kind: CommandKind
    session: int
    instruction: int
    sequence: int
    motion: Motion = NO_MOTION
    deadline_s: float = 0.0  # from receipt
    frame_age_s: float = 0.0
    text: str = ''
    unverified: bool = False

    @property
    def is_forward(self) -> bool:
        """Whether this drives where the collision sensor looks."""
        return self.kind is CommandKind.MOVE and self.motion.distance_m > 0


@dataclass(frozen=True)
class SafetyConfig(WatchdogConfig, AheadConfig):
    """Limits and time-outs; SI units."""

    max_linear: float = 0.5
    max_angular: float = 0.8
    unverified_max_linear: float = 0.15
    unverified_max_angular: float = 0.4
    linear_acceleration: float = 1.0
    angular_acceleration: float = 3.0
    linear_deceleration: float = 2.0
    angular_deceleration: float = 6.0
    max_distance: float = 1.0  # of one command
    max_angle: float = math.radians(90)
    max_command_s: float = 8.0  # a command's deadline is never later than this
    max_frame_age_s: float = 20.0  # a verdict for an older frame never moves the robot

    def fastest(self, unverified: bool) -> Velocity:
        """Return the limits of both speeds, as positive numbers."""
        if not unverified:
            return Velocity(self.max_linear, self.max_angular)
        return Velocity(
            min(self.max_linear, self.unverified_max_linear),
            min(self.max_angular, self.unverified_max_angular),
        )


@dataclass(frozen=True)
class Refusal:
    """
    Why a command is not carried out.

    In one or two words to count by, in full, and how that is reported.
    """

    kind: str
    reason: str
    state: MotionState = MotionState.REFUSED


def slew(current: float, wanted: float, up: float, down: float, dt: float) -> float:
    """
    Return the value nearest to `wanted` that may follow `current` after `dt` seconds.

    `up` limits the change away from zero, `down` the change towards it; a change of sign goes
    through zero.
    """
    if wanted * current < 0:
        wanted = 0.0
    limit = (up if abs(wanted) > abs(current) else down) * dt
    return current + max(-limit, min(limit, wanted - current))


class SafetyGate:
    """Sequence numbers, latches, watchdogs and limits of one robot."""

    def __init__(self, config: SafetyConfig | None = None) -> None:
        self.config = config or SafetyConfig()
        self.odometry_watch = OdometryWatch()
        self.supervision = SupervisionWatch()
        self.ahead = AheadWatch()
        self.refusals: Counter[str] = Counter()
        self.session: int | None = None
        self.sequence = 0
        self._retired: set[int] = set()
        self._instruction = 0
        self._latched: int | None = None  # the instruction that was ended
        self._latched_by = ''
        self._moving: Command | None = None  # None: nothing may move
        self._deadline = 0.0
        self._sent = ZERO
        self._sent_at: float | None = None

    @property
    def latched_by(self) -> str:
        """
        Return what holds the robot until the next instruction.

        It is "STOP", OPERATOR_STOP, or "" for nothing.
        """
        return self._latched_by if self._latched is not None else ''

    def stop(self) -> None:
        """Latch by the operator's hand: nothing moves until the next instruction."""
        self.end_motion()
        self._latched, self._latched_by = self._instruction, OPERATOR_STOP

    def admit(self, command: Command, now: float) -> Refusal | None:
        """
        Take note of a command; returns None when it may be carried out, else why not.

        STOP and HOLD end the motion in every case, even when the rest of them is refused; a MOVE
        that is in order ends the one before it, whether it is fit itself or not.
        """
        if command.kind is not CommandKind.MOVE:
            self.end_motion()
        refusal = self._out_of_order(command) or self._admit_in_order(command, now)
        if refusal is not None:
            self.refusals[refusal.kind] += 1
        return refusal

    def _admit_in_order(self, command: Command, now: float) -> Refusal | None:
        if command.session != self.session:
            if self.session is not None:
                self._retired.add(self.session)
            self.session, self._latched = command.session, None
        self.supervision.hear(command.session, now)
        self.sequence, self._instruction = command.sequence, command.instruction
        if self._latched is not None and command.instruction > self._latched:
            self._latched = None
        if command.kind is CommandKind.STOP:
            self._latched, self._latched_by = command.instruction, self.latched_by or 'STOP'
        if command.kind is not CommandKind.MOVE:
            return None
        self.end_motion()
        refusal = self._unfit(command, now)
        if refusal is None:
            self._moving = command
            self._deadline = now + min(command.deadline_s, self.config.max_command_s)
        return refusal

    def _out_of_order(self, command: Command) -> Refusal | None:
        if command.session in self._retired:
            return Refusal('order', 'from a session that another one replaced')
        if command.session != self.session:
            return None
        if command.sequence <= self.sequence:
            return Refusal('order', f'sequence {command.sequence} is not after {self.sequence}')
        if command.instruction < self._instruction:
            over = f'instruction {command.instruction} is over, now at {self._instruction}'
            return Refusal('order', over)
        return None

    def _unfit(self, command: Command, now: float) -> Refusal | None:
        c, motion = self.config, command.motion
        numbers = (motion.distance_m, motion.angle_rad, command.deadline_s, command.frame_age_s)
        if not all(math.isfinite(n) for n in numbers):
            return Refusal('no number', 'not a number in the command')
        if self._latched is not None:
            return Refusal('latched', f'{self.latched_by} is latched until the next instruction')
        if (motion.distance_m == 0) == (motion.angle_rad == 0):
            return Refusal('no motion', 'a motion is either a distance or an angle')
        if abs(motion.distance_m) > c.max_distance or abs(motion.angle_rad) > c.max_angle:
            longest = f'{c.max_distance:g} m, {math.degrees(c.max_angle):.0f} degrees'
            return Refusal('too long', f'longer than one command may be ({longest})')
        if command.deadline_s <= 0:
            return Refusal('deadline', 'its deadline has passed')
        if not 0 <= command.frame_age_s <= c.max_frame_age_s:
            age = command.frame_age_s
            old = f'decided from a frame {age:.1f} s old, limit {c.max_frame_age_s:g} s'
            return Refusal('frame age', old)
        if fault := self.fault(command, now):
            return Refusal(fault.state.name, fault.reason, fault.state)
        if fault := self.fault_ahead(command, now):
            return Refusal(fault.state.name, fault.reason, fault.state)
        return None

    def hear_odometry(self, pose: Pose, now: float) -> None:
        """Take note of an odometry message."""
        self.odometry_watch.hear(pose, now, self.config)

    @property
    def pose(self) -> Pose | None:
        """Return the latest sound pose."""
        return self.odometry_watch.pose

    def fault(self, command: Command, now: float) -> Fault | None:
        """
        Return the first fault of the senses that this command depends on.

        What is ahead is left out.
        """
        c, session = self.config, command.session
        if reason := self.odometry_watch.fault(now, c):
            return Fault(MotionState.STALE_ODOM, reason)
        if reason := self.supervision.supervisor_fault(session, now, c):
            return Fault(MotionState.SUPERVISOR_LOST, reason)
        if reason := self.supervision.camera_fault(session, now, c):
            return Fault(MotionState.STALE_CAMERA, reason)
        if not command.unverified and (reason := self.supervision.verifier_fault(session, now, c)):
            return Fault(MotionState.LINK_LOST, reason)
        return None

    def fault_ahead(self, command: Command, now: float) -> Fault | None:
        """
        Return why the robot may not go on forward.

        Either something is too near, or nothing is seen.
        """
        if not command.is_forward or not (reason := self.ahead.fault(now, self.config)):
            return None
        return Fault(MotionState.COLLISION_AHEAD, reason)

    def end_motion(self) -> None:
        """Nothing may move until the next admitted MOVE."""
        self._moving = None

    @property
    def has_motion(self) -> bool:
        """Whether there is an admitted MOVE that nothing has ended."""
        return self._moving is not None

    def time_left_s(self, now: float) -> float:
        """
        Seconds to the deadline of the motion under way.

        It is 0 when there is none or it has passed.
        """
        return 0.0 if self._moving is None else max(0.0, self._deadline - now)

    def deadline_passed(self, now: float) -> bool:
        """Whether there is a command and its time is over."""
        return self._moving is not None and now >= self._deadline

    def filter(self, wanted: Velocity, now: float) -> Velocity:  # noqa: A003
        """Return what may go out now: zero at once on any fault, else clamped and slewed."""
        # A stalled timer must not earn a big step.
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
            return ZERO
        c, fastest = self.config, self.config.fastest(command.unverified)
        linear = max(-fastest.linear, min(fastest.linear, wanted.linear))
        angular = max(-fastest.angular, min(fastest.angular, wanted.angular))
        self._sent = Velocity(
            slew(self._sent.linear, linear, c.linear_acceleration, c.linear_deceleration, dt),
            slew(self._sent.angular, angular, c.angular_acceleration, c.angular_deceleration, dt),
        )
        return self._sent

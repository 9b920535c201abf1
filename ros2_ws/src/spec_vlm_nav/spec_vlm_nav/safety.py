"""The last gate before the wheels: what does not pass every check here does not move the robot.

Two questions: may this COMMAND be carried out at all (`admit`), and what VELOCITY may go out now (`filter`)? Time is
passed in and is always receive time on a steady clock; stamps of other machines are never compared with it. A stop is
obeyed whoever says it.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from spec_vlm_nav.executor import NO_MOTION, ZERO, Motion, Pose, Velocity, wrap


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
    text: str = ""
    unverified: bool = False


@dataclass(frozen=True)
class SafetyConfig:
    """Limits and time-outs; SI units."""

    max_linear: float = 0.5
    max_angular: float = 0.8
    linear_acceleration: float = 1.0
    angular_acceleration: float = 3.0
    linear_deceleration: float = 2.0
    angular_deceleration: float = 6.0
    max_distance: float = 1.0  # of one command
    max_angle: float = math.radians(90)
    max_command_s: float = 8.0  # a command's deadline is never later than this
    max_frame_age_s: float = 20.0  # a verdict for an older frame never moves the robot
    odom_timeout_s: float = 0.5
    odom_jump_m: float = 0.5  # between two odometry messages
    odom_jump_rad: float = 1.0


def slew(current: float, wanted: float, up: float, down: float, dt: float) -> float:
    """Return the value nearest to `wanted` that may follow `current` after `dt` seconds.

    `up` limits the change away from zero, `down` the change towards it; a change of sign goes through zero.
    """
    if wanted * current < 0:
        wanted = 0.0
    limit = (up if abs(wanted) > abs(current) else down) * dt
    return current + max(-limit, min(limit, wanted - current))


class SafetyGate:
    """Sequence numbers, latches, watchdogs and limits of one robot."""

    def __init__(self, config: SafetyConfig | None = None) -> None:
        self.config = config or SafetyConfig()
        self._session: int | None = None
        self._retired: set[int] = set()
        self._sequence = 0
        self._instruction = 0
        self._latched: int | None = None  # the instruction that STOP ended
        self._deadline: float | None = None  # of the command being carried out; None: nothing may move
        self._odom_at: float | None = None
        self._odom: Pose | None = None
        self._odom_fault = "no odometry yet"
        self._sent = ZERO
        self._sent_at: float | None = None

    @property
    def is_latched(self) -> bool:
        """Whether STOP holds until the next instruction."""
        return self._latched is not None

    def admit(self, command: Command, now: float) -> str:
        """Take note of a command; returns "" when it may be carried out, else why not.

        STOP and HOLD end the motion in every case, even when the rest of them is refused.
        """
        if command.kind is not CommandKind.MOVE:
            self.end_motion()
        reason = self._out_of_order(command)
        if reason:
            return reason
        if command.session != self._session:
            if self._session is not None:
                self._retired.add(self._session)
            self._session, self._latched = command.session, None
        self._sequence, self._instruction = command.sequence, command.instruction
        if self._latched is not None and command.instruction > self._latched:
            self._latched = None
        if command.kind is CommandKind.STOP:
            self._latched = command.instruction
        if command.kind is not CommandKind.MOVE:
            return ""
        reason = self._unfit(command, now)
        if not reason:
            self._deadline = now + min(command.deadline_s, self.config.max_command_s)
        return reason

    def _out_of_order(self, command: Command) -> str:
        if command.session in self._retired:
            return "from a session that another one replaced"
        if command.session != self._session:
            return ""
        if command.sequence <= self._sequence:
            return f"sequence {command.sequence} is not after {self._sequence}"
        if command.instruction < self._instruction:
            return f"instruction {command.instruction} is over, now at {self._instruction}"
        return ""

    def _unfit(self, command: Command, now: float) -> str:
        c, motion = self.config, command.motion
        numbers = (motion.distance_m, motion.angle_rad, command.deadline_s, command.frame_age_s)
        if not all(math.isfinite(n) for n in numbers):
            return "not a number in the command"
        if self._latched is not None:
            return "STOP is latched until the next instruction"
        if (motion.distance_m == 0) == (motion.angle_rad == 0):
            return "a motion is either a distance or an angle"
        if abs(motion.distance_m) > c.max_distance or abs(motion.angle_rad) > c.max_angle:
            return f"longer than one command may be ({c.max_distance:g} m, {math.degrees(c.max_angle):.0f} degrees)"
        if command.deadline_s <= 0:
            return "its deadline has passed"
        if not 0 <= command.frame_age_s <= c.max_frame_age_s:
            return f"decided from a frame {command.frame_age_s:.1f} s old, limit {c.max_frame_age_s:g} s"
        return self.odometry_fault(now)

    def odometry(self, pose: Pose, now: float) -> None:
        """Take note of an odometry message; a jump or a NaN makes odometry faulty until a sound pair follows."""
        last, self._odom_fault = self._odom, ""
        if not pose.is_finite:
            self._odom_fault = "odometry is not a number"
            return
        if last is not None:
            jump = math.hypot(pose.x - last.x, pose.y - last.y)
            if jump > self.config.odom_jump_m or abs(wrap(pose.yaw - last.yaw)) > self.config.odom_jump_rad:
                self._odom_fault = f"odometry jumped by {jump:.2f} m"
        self._odom, self._odom_at = pose, now

    @property
    def pose(self) -> Pose | None:
        """The latest sound pose."""
        return self._odom

    def odometry_fault(self, now: float) -> str:
        """Return why odometry cannot be trusted now, or ""."""
        if self._odom_fault:
            return self._odom_fault
        assert self._odom_at is not None
        age = now - self._odom_at
        return f"odometry is {age:.2f} s old" if age > self.config.odom_timeout_s else ""

    def end_motion(self) -> None:
        """Nothing may move until the next admitted MOVE."""
        self._deadline = None

    def deadline_passed(self, now: float) -> bool:
        """Whether there is a command and its time is over."""
        return self._deadline is not None and now >= self._deadline

    def filter(self, wanted: Velocity, now: float) -> Velocity:
        """Return what may go out now: zero at once on any fault, else clamped and slewed."""
        # A stalled timer must not earn a big step.
        dt = 0.0 if self._sent_at is None else min(0.1, max(0.0, now - self._sent_at))
        self._sent_at = now
        fault = (
            self._deadline is None
            or now >= self._deadline
            or self._latched is not None
            or bool(self.odometry_fault(now))
            or not (math.isfinite(wanted.linear) and math.isfinite(wanted.angular))
        )
        if fault:
            self._sent = ZERO
            return ZERO
        c = self.config
        linear = max(-c.max_linear, min(c.max_linear, wanted.linear))
        angular = max(-c.max_angular, min(c.max_angular, wanted.angular))
        self._sent = Velocity(
            slew(self._sent.linear, linear, c.linear_acceleration, c.linear_deceleration, dt),
            slew(self._sent.angular, angular, c.angular_acceleration, c.angular_deceleration, dt),
        )
        return self._sent

"""The moving side as one object without ROS: commands and odometry in, a velocity per tick and status reports out.

It joins the executor (how to get there) and the gate (whether to move at all). `motion_node` is a shell around it and
adds nothing to its decisions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from spec_vlm_nav.executor import (
    NO_MOTION,
    ZERO,
    ExecutorConfig,
    Motion,
    MotionExecutor,
    Pose,
    Progress,
    Velocity,
)
from spec_vlm_nav.safety import Command, CommandKind, SafetyConfig, SafetyGate


class MotionState(enum.Enum):
    """The states of MotionStatus.msg."""

    IDLE = 0
    MOVING = 1
    REACHED = 2
    STOPPED = 3
    BLOCKED = 4
    EXPIRED = 5
    REFUSED = 6
    STALE_ODOM = 7
    SETTLING = 8
    COLLISION_AHEAD = 9
    STALE_CAMERA = 10
    LINK_LOST = 11
    SUPERVISOR_LOST = 12


_FINAL = {
    Progress.REACHED: MotionState.REACHED,
    Progress.BLOCKED: MotionState.BLOCKED,
    Progress.EXPIRED: MotionState.EXPIRED,
}


@dataclass(frozen=True)
class Status:
    """One report: which command, what became of it, and why in words."""

    state: MotionState
    session: int = 0
    sequence: int = 0
    reason: str = ""
    done: Motion = NO_MOTION
    left: Motion = NO_MOTION
    unverified: bool = False


class MotionCore:
    """Executor and gate of one robot."""

    def __init__(self, executor: ExecutorConfig | None = None, safety: SafetyConfig | None = None) -> None:
        self.gate = SafetyGate(safety)
        self.executor = MotionExecutor(executor)
        self.status = Status(MotionState.IDLE)
        self._command: Command | None = None
        self._events: list[Status] = []

    def take_events(self) -> list[Status]:
        """Return the status changes since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def on_odometry(self, pose: Pose, now: float) -> None:
        """Take note of odometry received now."""
        self.gate.odometry(pose, now)
        # Here and not in the tick: the next message may come before it and look sound.
        if self._command is not None and (fault := self.gate.odometry_fault(now)):
            self._end(MotionState.STALE_ODOM, self._command, fault, now)

    def on_command(self, command: Command, now: float) -> None:
        """Carry out, or refuse with a reason."""
        refused = self.gate.admit(command, now)
        if command.kind is not CommandKind.MOVE:
            # Also a late or foreign STOP ends what is under way.
            self.executor.cancel()
            about = command if not refused or self._command is None else self._command
            self._command = None
            self._report(MotionState.STOPPED, about, command.text or command.kind.name)
            return
        if refused:
            self._events.append(Status(MotionState.REFUSED, command.session, command.sequence, refused))
            return
        pose = self.gate.pose
        assert pose is not None  # the gate admits nothing without odometry
        self._command = command
        self.executor.start(command.motion, pose, now)
        self._report(MotionState.MOVING, command, command.text)

    def tick(self, now: float) -> Velocity:
        """Return the velocity to publish now."""
        pose, command = self.gate.pose, self._command
        if command is None or pose is None or not self.executor.is_active:
            return self.gate.filter(ZERO, now)
        if fault := self.gate.odometry_fault(now):
            return self._end(MotionState.STALE_ODOM, command, fault, now)
        if self.gate.deadline_passed(now):
            return self._end(MotionState.EXPIRED, command, "deadline passed", now)
        wanted, progress = self.executor.update(pose, now)
        if progress in _FINAL:
            reason = {
                Progress.BLOCKED: "no progress, or pushed aside: against something?",
                Progress.EXPIRED: "not reached in time",
            }.get(progress, "")
            return self._end(_FINAL[progress], command, reason, now)
        return self.gate.filter(wanted, now)

    def _end(self, state: MotionState, command: Command, reason: str, now: float) -> Velocity:
        done = self.executor.done(self.gate.pose) if self.gate.pose else NO_MOTION
        self.executor.cancel()
        self.gate.end_motion()
        self._command = None
        self._report(state, command, reason, done)
        return self.gate.filter(ZERO, now)

    def _report(self, state: MotionState, command: Command, reason: str, done: Motion = NO_MOTION) -> None:
        self.status = Status(state, command.session, command.sequence, reason, done)
        self._events.append(self.status)

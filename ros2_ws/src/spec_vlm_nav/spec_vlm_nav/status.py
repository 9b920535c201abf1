"""What motion_node says of a command: its states and one report. The words are those of MotionStatus.msg."""

from __future__ import annotations

from dataclasses import dataclass
import enum

from spec_vlm_nav.executor import Motion, NO_MOTION


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


UNDER_WAY = (MotionState.MOVING, MotionState.SETTLING)


@dataclass(frozen=True)
class Status:
    """One report: which command, what became of it, and why in words. `left` is of the command, by odometry."""

    state: MotionState
    session: int = 0
    sequence: int = 0
    reason: str = ''
    done: Motion = NO_MOTION
    left: Motion = NO_MOTION
    unverified: bool = False

"""The stack of the whole-graph tests, and what tests ask of it."""

from __future__ import annotations

from specnav.errors import HarnessError
from specnav.supervise.robot_stack import CMD_VEL, METRICS, STATE, Stack, TrialPair, free_port, speed

__all__ = ["CMD_VEL", "METRICS", "STATE", "Stack", "TrialPair", "check_all_up", "free_port", "last_motion", "speed"]


def last_motion(stack: Stack, since: float) -> float:
    """Seconds from `since` to the last velocity that was not zero (0: there was none)."""
    moving = [h.at for h in stack.probe.heard(CMD_VEL, since) if speed(h) > 0]
    return max(moving) - since if moving else 0.0


def check_all_up(stack: Stack) -> None:
    """Raise HarnessError when a process that should be up has ended."""
    for process in stack.robot:
        if not process.is_up:
            raise HarnessError(f"{process.name} ended by itself; its log is {process.log}")

# SPDX-License-Identifier: Apache-2.0
"""Leak checks: repeat an action while memory, descriptors and threads of the processes are sampled."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from spec_vlm_nav_interfaces.msg import MotionCommand

from specnav.drill.growth import Allowance, growth
from specnav.drill.results import LeakCheck, Sample
from specnav.errors import HarnessError
from specnav.supervise.robot_graph import Process
from specnav.supervise.robot_stack import Stack
from specnav.supervise.waiting import wait_until

ALLOWED = {
    "vlm_nav_node": Allowance(12.0),
    "motion_node": Allowance(3.0),
    "cloud_verifier": Allowance(12.0),
}
THINKS_S = 0.12
CHANGE_S = 20.0
STOP_S = 2.0


class LeakWatch:
    """Samples the processes of a stack."""

    def __init__(self, stack: Stack) -> None:
        self._processes = {p.name: psutil.Process(p.popen.pid) for p in _watched(stack)}
        self._began = time.monotonic()
        self.samples: dict[str, list[Sample]] = {name: [] for name in self._processes}

    def look(self) -> None:
        """Sample each process. Raises HarnessError if one has ended."""
        t_s = time.monotonic() - self._began
        for name, process in self._processes.items():
            try:
                with process.oneshot():
                    rss = process.memory_info().rss / 1e6
                    self.samples[name].append(Sample(t_s, rss, process.num_fds(), process.num_threads()))
            except psutil.Error as error:
                raise HarnessError(f"{name} ended by itself") from error


def _watched(stack: Stack) -> tuple[Process, ...]:
    return stack.decider, stack.mover, stack.verifier


def check_cancels(stack: Stack, turns: int) -> LeakCheck:
    """Cancel instructions, alternately while the model decides and while the robot moves."""

    def turn(number: int) -> None:
        began = stack.instruct(stack.instruction)
        if number % 2:
            time.sleep(THINKS_S)
        else:
            stack.wait_until_moving(began)
        said = stack.cancel()
        # Topics have no common order: the next instruction could arrive before this cancel.
        wait_until(lambda: bool(stack.commands(said, MotionCommand.STOP)), STOP_S, "STOP after a cancel")

    stack.make_ready()
    return _check(stack, "cancels", turns, turn)


def check_cycles(stack: Stack, turns: int) -> LeakCheck:
    """Deactivate vlm_nav_node while the robot moves, activate it, and give the next instruction."""

    def turn(number: int) -> None:
        stack.wait_until_moving(stack.instruct(stack.instruction))
        for transition in (Transition.TRANSITION_DEACTIVATE, Transition.TRANSITION_ACTIVATE):
            change_state(stack, transition)

    stack.make_ready()
    return _check(stack, "lifecycle cycles", turns, turn)


def change_state(stack: Stack, transition: int) -> None:
    """Request a lifecycle transition of vlm_nav_node. Raises HarnessError if it fails."""
    request = ChangeState.Request()
    request.transition.id = transition
    if not stack.probe.call(ChangeState, "vlm_nav_node/change_state", request, CHANGE_S).success:
        raise HarnessError(f"vlm_nav_node refused lifecycle transition {transition}")


def _check(stack: Stack, what: str, turns: int, turn: Callable[[int], None]) -> LeakCheck:
    watch, began = LeakWatch(stack), time.monotonic()
    for number in range(turns):
        turn(number)
        watch.look()
    rows = [row for name, samples in watch.samples.items() for row in growth(name, samples, ALLOWED[name])]
    return LeakCheck(
        what=what, turns=turns, rows=rows, samples=watch.samples, wall_s=time.monotonic() - began
    )

# SPDX-License-Identifier: Apache-2.0
"""Faults of the link, the verifier, the processes and the sensors.

A fault is a context manager over a running stack. It is injected when the block begins, which receives that time
(time.monotonic), and everything is repaired at the block's end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from std_srvs.srv import Trigger

from specnav.supervise.meddling import Meddler
from specnav.supervise.robot_graph import Process
from specnav.supervise.robot_stack import Stack

Value = bool | float | str


@contextmanager
def link_cut(stack: Stack) -> Iterator[float]:
    """Nothing passes between robot and verifier; messages sent meanwhile arrive afterwards."""
    stack.link.shut()
    try:
        yield time.monotonic()
    finally:
        stack.link.open()


@contextmanager
def spoiled(make: Callable[[], Meddler], stack: Stack) -> Iterator[float]:
    """The verifier's messages are altered on their way; `make` creates the alteration."""
    stack.link.meddle(make())
    try:
        yield time.monotonic()
    finally:
        stack.link.meddle()


@contextmanager
def killed(which: str, stack: Stack) -> Iterator[float]:
    """SIGKILL a process, by its name in the stack; it is restarted as a launch file or systemd would do it."""
    process: Process = getattr(stack, which)
    at = process.kill(signal.SIGKILL)
    process.popen.wait(10)
    try:
        yield at
    finally:
        stack.start_what_is_down()


@contextmanager
def frozen(which: str, stack: Stack) -> Iterator[float]:
    """SIGSTOP a process, by its name in the stack: it is alive but silent."""
    process: Process = getattr(stack, which)
    try:
        yield process.kill(signal.SIGSTOP)
    finally:
        process.kill(signal.SIGCONT)


@dataclass(frozen=True)
class BrokenRobot:
    """Breaks a sensor or the base of the simulated robot by parameters of the simulator, and restores them.

    reset: after the repair, the operator resets motion_node so that it trusts the part again.
    """

    broken: dict[str, Value]
    sound: dict[str, Value]
    reset: bool = False

    @contextmanager
    def __call__(self, stack: Stack) -> Iterator[float]:
        """Yields the time of the request, so that no measured time is too short."""
        at = time.monotonic()
        stack.set_simulator(**self.broken)
        try:
            yield at
        finally:
            stack.set_simulator(**self.sound)
            if self.reset:
                stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())

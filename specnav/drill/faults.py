# SPDX-License-Identifier: Apache-2.0
"""Faults of the link, the verifier, the processes and the sensors.

A fault is a context manager over a running stack: it strikes as the block begins, which gets when that was
(time.monotonic), and all is made good at the block's end.
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
    """Nothing passes between robot and verifier; what was sent arrives afterwards."""
    stack.link.shut()
    try:
        yield time.monotonic()
    finally:
        stack.link.open()


@contextmanager
def spoiled(make: Callable[[], Meddler], stack: Stack) -> Iterator[float]:
    """The verifier's messages are spoiled on their way; `make` gives the meddler."""
    stack.link.meddle(make())
    try:
        yield time.monotonic()
    finally:
        stack.link.meddle()


@contextmanager
def killed(which: str, stack: Stack) -> Iterator[float]:
    """SIGKILL to a process, by its name in the stack; started again as a launch file or systemd would."""
    process: Process = getattr(stack, which)
    at = process.kill(signal.SIGKILL)
    process.popen.wait(10)
    try:
        yield at
    finally:
        stack.start_what_is_down()


@contextmanager
def frozen(which: str, stack: Stack) -> Iterator[float]:
    """SIGSTOP to a process, by its name in the stack: it is there and says nothing."""
    process: Process = getattr(stack, which)
    try:
        yield process.kill(signal.SIGSTOP)
    finally:
        process.kill(signal.SIGCONT)


@dataclass(frozen=True)
class BrokenRobot:
    """A sensor or the base of the simulated robot is broken: parameters of the simulator, and what they are normally.

    reset: the operator says when it is mended that motion_node may rely on it again.
    """

    broken: dict[str, Value]
    sound: dict[str, Value]
    reset: bool = False

    @contextmanager
    def __call__(self, stack: Stack) -> Iterator[float]:
        """The time is that of the request, so that no figure is flattered."""
        at = time.monotonic()
        stack.set_simulator(**self.broken)
        try:
            yield at
        finally:
            stack.set_simulator(**self.sound)
            if self.reset:
                stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())

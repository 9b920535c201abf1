# SPDX-License-Identifier: Apache-2.0
"""Faults of the link, the verifier, the processes and the sensors: small records that know how to strike and to end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from std_srvs.srv import Trigger

from specnav.supervise.meddling import Meddler, untouched
from specnav.supervise.robot_graph import Process
from specnav.supervise.robot_stack import Stack

Value = bool | float | str


@dataclass(frozen=True)
class LinkCut:
    """Nothing passes between robot and verifier; what was sent arrives afterwards."""

    def strike(self, stack: Stack) -> float:
        """Cut."""
        stack.link.shut()
        return time.monotonic()

    def end(self, stack: Stack) -> None:
        """Mend."""
        stack.link.open()


@dataclass(frozen=True)
class BadVerifier:
    """The verifier's messages are spoiled on their way; `make` gives the meddler."""

    make: Callable[[], Meddler]

    def strike(self, stack: Stack) -> float:
        """Begin."""
        stack.link.meddle(self.make())
        return time.monotonic()

    def end(self, stack: Stack) -> None:
        """Leave the messages alone."""
        stack.link.meddle(untouched)


@dataclass(frozen=True)
class Killed:
    """SIGKILL; started again at the end, as a launch file or systemd would."""

    which: Callable[[Stack], Process]

    def strike(self, stack: Stack) -> float:
        """Kill."""
        process = self.which(stack)
        at = process.kill(signal.SIGKILL)
        process.popen.wait(10)
        return at

    def end(self, stack: Stack) -> None:
        """Start it again and wait until it is ready."""
        stack.start_what_is_down()


@dataclass(frozen=True)
class Frozen:
    """SIGSTOP: the process is there and says nothing; SIGCONT at the end."""

    which: Callable[[Stack], Process]

    def strike(self, stack: Stack) -> float:
        """Stop."""
        return self.which(stack).kill(signal.SIGSTOP)

    def end(self, stack: Stack) -> None:
        """Continue."""
        self.which(stack).kill(signal.SIGCONT)


@dataclass(frozen=True)
class BrokenRobot:
    """A sensor or the base of the simulated robot is broken: parameters of the simulator, and what they are normally.

    reset: the operator says when it is mended that motion_node may rely on it again.
    """

    broken: dict[str, Value] = field(default_factory=dict)
    sound: dict[str, Value] = field(default_factory=dict)
    reset: bool = False

    def strike(self, stack: Stack) -> float:
        """Break it; the time is that of the request, so that no figure is flattered."""
        at = time.monotonic()
        stack.set_simulator(**self.broken)
        return at

    def end(self, stack: Stack) -> None:
        """Mend it."""
        stack.set_simulator(**self.sound)
        if self.reset:
            stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())

# SPDX-License-Identifier: Apache-2.0
"""Faults that are messages: orders of the operator, a flood of them, numbers that are none, and a clock that jumps."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rosgraph_msgs.msg import Clock
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision
from std_msgs.msg import Bool, Empty, String
from std_srvs.srv import Trigger

from specnav.supervise.robot_stack import COMMAND, SUPERVISION, Stack

FLOOD_HZ = 1000.0
JUMPS_S = (0.0, 3600.0, -3600.0, 0.05, -86_400.0)
CLOCK_HZ = 20.0


@dataclass(frozen=True)
class OperatorOrder:
    """The operator wants something; `give` publishes it and says when."""

    give: Callable[[Stack], float]

    def strike(self, stack: Stack) -> float:
        """Give the order."""
        return self.give(stack)

    def end(self, stack: Stack) -> None:
        """Nothing to be taken back."""


def cancel(stack: Stack) -> float:
    """`~/cancel` of vlm_nav_node."""
    return stack.cancel()


def say_stop(stack: Stack) -> float:
    """The instruction "stop"."""
    return stack.instruct("stop")


def stop_topic(stack: Stack) -> float:
    """The topic `stop` of motion_node."""
    return stack.probe.say("stop", Empty())


def stop_service(stack: Stack) -> float:
    """The service `~/stop` of motion_node."""
    at = time.monotonic()
    stack.probe.call(Trigger, "motion_node/stop", Trigger.Request())
    return at


@dataclass(frozen=True)
class EmergencyStop:
    """A button that publishes best effort; a second later an operator gives an instruction, which must move
    nothing.
    """

    def strike(self, stack: Stack) -> float:
        """Press it."""
        at = stack.probe.say("e_stop", Bool(data=True), reliable=False)
        threading.Timer(1.0, lambda: stack.instruct(stack.instruction)).start()
        return at

    def end(self, stack: Stack) -> None:
        """Release it, and reset."""
        stack.probe.say("e_stop", Bool(data=False), reliable=False)
        stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())


@dataclass(frozen=True)
class ZerosDropped:
    """The driver drops Twists of zeros and the base holds the last one; then the operator says stop."""

    def strike(self, stack: Stack) -> float:
        """Break the driver, then stop."""
        stack.set_simulator(drops_zeros=True)
        return stop_topic(stack)

    def end(self, stack: Stack) -> None:
        """Mend the driver."""
        stack.set_simulator(drops_zeros=False)


def preempt(stack: Stack) -> float:
    """Another instruction."""
    return stack.instruct(f"please {stack.instruction}")


@dataclass
class Repeated:
    """Something published again and again, in a thread, while the fault lasts."""

    rate_hz: float
    topic: tuple[type, str]
    prepare: Callable[[Stack], None] = lambda stack: None
    restore: Callable[[Stack], None] = lambda stack: None
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def publish(self, stack: Stack, number: int) -> None:
        """Publish once."""
        raise NotImplementedError

    def strike(self, stack: Stack) -> float:
        """Begin."""
        self.prepare(stack)
        stack.probe.open(*self.topic)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(stack,), name="repeated", daemon=True)
        at = time.monotonic()
        self._thread.start()
        return at

    def _run(self, stack: Stack) -> None:
        began = time.monotonic()
        for number in itertools.count():
            self.publish(stack, number)
            if self._end.wait(max(0.0, began + (number + 1) / self.rate_hz - time.monotonic())):
                return

    def end(self, stack: Stack) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join(10)
        self.restore(stack)


class Flood(Repeated):
    """Instructions without end; the last one counts."""

    def publish(self, stack: Stack, number: int) -> None:
        """Publish an instruction."""
        stack.probe.say("instruction", String(data=stack.instruction))


class JumpingClock(Repeated):
    """The robot's nodes are instructed to use simulated time, and /clock jumps back and forth."""

    def publish(self, stack: Stack, number: int) -> None:
        """Publish a time."""
        seconds = 1e6 + time.monotonic() + JUMPS_S[number % len(JUMPS_S)]
        message = Clock()
        message.clock.sec, message.clock.nanosec = int(seconds), int(seconds % 1 * 1e9)
        stack.probe.say("/clock", message)


def use_simulated_time(wanted: bool) -> Callable[[Stack], None]:
    """Switch the clock of the robot's nodes."""

    def switch(stack: Stack) -> None:
        for node in ("vlm_nav_node", "motion_node"):
            stack.probe.set_parameters(node, use_sim_time=wanted)

    return switch


@dataclass(frozen=True)
class NanCommand:
    """A motion command in which every number is NaN, in the name of the deciding node, behind its last one."""

    def strike(self, stack: Stack) -> float:
        """Publish it."""
        last = stack.probe.last(COMMAND)
        assert last is not None
        message = MotionCommand(
            kind=MotionCommand.MOVE,
            session=last.message.session,
            instruction=last.message.instruction,
            sequence=last.message.sequence + 1,
            distance_m=math.nan,
            angle_rad=math.nan,
            frame_age_s=math.nan,
        )
        message.deadline.sec = 5
        return stack.probe.say(COMMAND, message)

    def end(self, stack: Stack) -> None:
        """Nothing to be taken back."""


class NanSupervision(Repeated):
    """Signs of life in which every age is NaN, in the name of the deciding node, between its own."""

    def publish(self, stack: Stack, number: int) -> None:
        """Publish one."""
        last = stack.probe.last(COMMAND)
        assert last is not None
        message = Supervision(session=last.message.session, camera_age_s=math.nan, verifier_age_s=math.nan)
        stack.probe.say(SUPERVISION, message)

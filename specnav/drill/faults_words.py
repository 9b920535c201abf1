# SPDX-License-Identifier: Apache-2.0
"""Faults that are messages: operator commands, a flood of them, NaNs, and a jumping clock.

Faults that need no repair are injected by `ordered`.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rosgraph_msgs.msg import Clock
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision
from std_msgs.msg import Bool, Empty, String
from std_srvs.srv import Trigger

from specnav.supervise.robot_stack import COMMAND, SUPERVISION, Stack

FLOOD_HZ = 1000.0
JUMPS_S = (0.0, 3600.0, -3600.0, 0.05, -86_400.0)
CLOCK_HZ = 20.0
LIVES_HZ = 20.0


@contextmanager
def ordered(give: Callable[[Stack], float], stack: Stack) -> Iterator[float]:
    """A message is sent once; `give` sends it and returns the time."""
    yield give(stack)


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


def preempt(stack: Stack) -> float:
    """Another instruction."""
    return stack.instruct(f"please {stack.instruction}")


def nan_command(stack: Stack) -> float:
    """A motion command in which every number is NaN, in the name of the deciding node, after its last one."""
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


@contextmanager
def emergency_stop(stack: Stack) -> Iterator[float]:
    """An e-stop button that publishes best effort; a second later an instruction is given, which must move nothing.

    At the end the button is released, and motion_node is reset.
    """
    at = stack.probe.say("e_stop", Bool(data=True), reliable=False)
    threading.Timer(1.0, lambda: stack.instruct(stack.instruction)).start()
    try:
        yield at
    finally:
        stack.probe.say("e_stop", Bool(data=False), reliable=False)
        stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())


@contextmanager
def zeros_dropped(stack: Stack) -> Iterator[float]:
    """The driver drops Twists of zeros and the base holds the last one; then the operator sends stop."""
    stack.set_simulator(drops_zeros=True)
    try:
        yield stop_topic(stack)
    finally:
        stack.set_simulator(drops_zeros=False)


@contextmanager
def repeated(
    stack: Stack, rate_hz: float, kind: type, topic: str, make: Callable[[int], Any]
) -> Iterator[float]:
    """A message published repeatedly by a thread during the fault. make: returns the message with a number."""
    stack.probe.open(kind, topic)
    ended = threading.Event()

    def publish() -> None:
        began = time.monotonic()
        for number in itertools.count():
            stack.probe.say(topic, make(number))
            if ended.wait(max(0.0, began + (number + 1) / rate_hz - time.monotonic())):
                return

    thread = threading.Thread(target=publish, name="repeated", daemon=True)
    at = time.monotonic()
    thread.start()
    try:
        yield at
    finally:
        ended.set()
        thread.join(10)


@contextmanager
def flooded(stack: Stack) -> Iterator[float]:
    """An endless flood of instructions; the last one counts."""
    with repeated(stack, FLOOD_HZ, String, "instruction", lambda _: String(data=stack.instruction)) as at:
        yield at


@contextmanager
def clock_jumps(stack: Stack) -> Iterator[float]:
    """The robot's nodes are set to simulated time, and /clock jumps back and forth."""

    def time_of(number: int) -> Clock:
        seconds = 1e6 + time.monotonic() + JUMPS_S[number % len(JUMPS_S)]
        message = Clock()
        message.clock.sec, message.clock.nanosec = int(seconds), int(seconds % 1 * 1e9)
        return message

    _use_simulated_time(stack, True)
    try:
        with repeated(stack, CLOCK_HZ, Clock, "/clock", time_of) as at:
            yield at
    finally:
        _use_simulated_time(stack, False)


def _use_simulated_time(stack: Stack, wanted: bool) -> None:
    for node in ("vlm_nav_node", "motion_node"):
        stack.probe.set_parameters(node, use_sim_time=wanted)


@contextmanager
def nan_lives(stack: Stack) -> Iterator[float]:
    """Heartbeats in which every age is NaN, in the name of the deciding node, between its own ones."""

    def life(number: int) -> Supervision:
        last = stack.probe.last(COMMAND)
        assert last is not None
        return Supervision(session=last.message.session, camera_age_s=math.nan, verifier_age_s=math.nan)

    with repeated(stack, LIVES_HZ, Supervision, SUPERVISION, life) as at:
        yield at

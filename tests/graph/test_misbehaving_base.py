"""From outside, over topics alone: default parameters, a room never trained in, and a base or a driver that lies.

`python -m tests.graph.test_misbehaving_base` measures the same for a table, with more phrases.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from std_msgs.msg import String
from std_srvs.srv import Trigger

from specnav.supervise.robot_stack import CMD_VEL, ODOM
from tests.graph.harness import wait_until
from tests.graph.stack import Stack, TrialPair, last_motion, speed

pytestmark = pytest.mark.graph

OUTCOME = "vlm_nav_node/outcome"
POLICIES = ("auto", "none")
PHRASES = ("please stop moving", "Freeze!", "bitte anhalten", "EMERGENCY STOP")
MORE_PHRASES = (
    "stop the robot",
    "halt",
    "abort",
    "wait",
    "stand still",
    "don't move",
    "e-stop",
    "could you stop, please?",
    "arrête-toi",
    "alto",
    "停",
)


@dataclass(frozen=True)
class Driven:
    """What went over cmd_vel between an instruction and its end."""

    forward_m: float
    backward_m: float
    pushes: int  # forward motions
    took_s: float
    code: str
    message: str


@pytest.fixture(scope="module")
def robot(pair, tmp_path_factory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("lying"), pair) as stack:
        stack.probe.listen(String, OUTCOME)
        yield stack


def sound(stack: Stack, policy: str, ahead: bool = False) -> None:
    """A sound robot in a new room, without an instruction. ahead: it faces what it is to find."""
    stack.set_simulator(odom_fault="none", base_fault="none", drops_zeros=False)
    stack.start_what_is_down()
    stack.cancel()
    stack.probe.call(Trigger, "motion_node/reset", Trigger.Request())
    stack.probe.set_parameters("vlm_nav_node", exploration=policy)
    stack.reset("heldout", ahead=ahead)


def drive(stack: Stack, timeout_s: float) -> Driven:
    """Instruct, and look at cmd_vel until the instruction has ended."""
    began = stack.instruct(stack.instruction)
    wait_until(
        lambda: stack.probe.heard(OUTCOME, began) != [], timeout_s, "the end", lambda: stack.decider.text
    )
    ended = stack.probe.heard(OUTCOME, began)[0]
    said = json.loads(ended.message.data)
    time.sleep(1.0)
    heard = stack.probe.heard(CMD_VEL, began)
    ahead = behind = 0.0
    for one, other in itertools.pairwise(heard):
        way = one.message.linear.x * min(other.at - one.at, 1.0)
        ahead, behind = ahead + max(way, 0.0), behind + max(-way, 0.0)
    forward = [False, *(h.message.linear.x > 0.002 for h in heard)]
    pushes = sum(now and not before for before, now in itertools.pairwise(forward))
    return Driven(ahead, behind, pushes, ended.at - began, said["code"], said["message"])


def frozen(stack: Stack, policy: str) -> Driven:
    sound(stack, policy)
    stack.set_simulator(odom_fault="frozen")
    return drive(stack, 60.0)


def wall(stack: Stack, policy: str) -> Driven:
    sound(stack, policy)
    stack.set_simulator(base_fault="stuck")
    return drive(stack, 120.0)


def place(stack: Stack) -> tuple[float, float]:
    last = stack.probe.last(ODOM)
    assert last is not None
    return last.message.pose.pose.position.x, last.message.pose.pose.position.y


def stop_while_moving(stack: Stack, text: str, drops_zeros: bool = False) -> tuple[float, float]:
    """Seconds until the last motion after a stop, and metres gone after it."""
    sound(stack, "auto", ahead=drops_zeros)  # to be found going forward
    stack.set_simulator(drops_zeros=drops_zeros)
    began = stack.instruct(stack.instruction)

    def is_going() -> bool:
        newest = stack.probe.last(CMD_VEL)
        if newest is None or newest.at < began:
            return False
        return newest.message.linear.x > 0.15 if drops_zeros else speed(newest) > 0.1

    wait_until(is_going, 60, "a motion", lambda: stack.decider.text)
    at, here = stack.probe.say("instruction", String(data=text)), place(stack)
    time.sleep(2.5)
    there = place(stack)
    return last_motion(stack, at), math.hypot(there[0] - here[0], there[1] - here[1])


def test_odometry_that_repeats_one_pose_ends_the_instruction(robot):
    driven = frozen(robot, "auto")
    assert driven.forward_m <= 0.6 and driven.backward_m == 0
    assert driven.took_s <= 10 and driven.code in ("NO_RESPONSE", "STALE_ODOM") and driven.message


def test_a_wall_that_the_camera_does_not_show_is_not_pushed_against_for_ever(robot):
    driven = wall(robot, "none")
    assert driven.code in ("BLOCKED", "NO_RESPONSE", "COLLISION_AHEAD", "TOO_MANY_DECISIONS")
    assert driven.message and driven.pushes <= 5 and driven.backward_m == 0 and driven.forward_m <= 1.2


def test_a_stop_phrase_stops_a_robot_whose_driver_drops_zeros_and_it_stays_there(robot):
    """Which phrases mean stop: tests/robot/test_stop_words.py. How soon a sound driver stands: test_drill."""
    _, metres = stop_while_moving(robot, "bitte anhalten", drops_zeros=True)
    assert metres <= 0.16  # slowing down from 0.5 m/s at 1.5 m/s2 takes half of it


def main() -> None:
    """Measure the table."""
    folder = Path(tempfile.mkdtemp(prefix="misbehaving"))
    with Stack(folder, TrialPair()) as stack:
        stack.probe.listen(String, OUTCOME)
        for what, try_it in (("frozen", frozen), ("wall", wall)):
            for policy in POLICIES:
                for _ in range(3):
                    print(what, policy, try_it(stack, policy), flush=True)
        for _ in range(5):
            print("zeros dropped", stop_while_moving(stack, "stop", drops_zeros=True), flush=True)
        for text in (*PHRASES, *MORE_PHRASES):
            print(f"{text!r}", stop_while_moving(stack, text), flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Goals across lifecycle transitions of vlm_nav_node: none is lost, none is answered with another one's outcome."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

import pytest
from spec_vlm_nav_interfaces.action import NavigateInstruction

from tests.graph.action_client import Operator
from tests.graph.harness import Graph, wait_until
from tests.graph.navigating import Robot

pytestmark = pytest.mark.graph
RESULT = NavigateInstruction.Result


@contextmanager
def running(folder):
    with Graph(folder) as graph:
        made = Robot(graph)
        yield made
        made.close()
        assert "Traceback" not in made.node.text


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lifecycle")) as robot:
        yield robot


@pytest.fixture
def robot(started):
    started.make_ready()
    return started


@pytest.fixture
def ending(tmp_path):
    """One of its own, for a test that ends its node."""
    with running(tmp_path) as robot:
        yield robot


def end_of(robot):
    """The exit code of vlm_nav_node once it has ended."""
    popen = robot.node.popen
    wait_until(lambda: popen.poll() is not None, 10, "the node's end", lambda: robot.node.text)
    return popen.returncode


def test_goals_after_a_new_activation_are_not_answered_with_outcomes_from_before(robot):
    operator = robot.operator
    assert operator.send("finish it").result()[0] == "succeeded"
    assert operator.transition("deactivate") and operator.transition("activate")
    goal = operator.send("slow thoughts")
    time.sleep(0.5)
    goal.cancel()
    assert goal.result()[1].error_code == RESULT.CANCELED
    assert operator.transition("deactivate") and operator.transition("activate")
    assert operator.send("  ").result()[1].error_code == RESULT.INVALID_INPUT


def test_a_cancel_overtaken_by_a_deactivation_still_ends_the_goal(robot):
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    robot.mover.popen.send_signal(signal.SIGSTOP)  # so that the cancel has to wait for its word
    canceling = goal.handle.cancel_goal_async()
    deactivated = robot.operator.transition("deactivate")
    robot.mover.popen.send_signal(signal.SIGCONT)
    assert deactivated
    wait_until(canceling.done, 5, "the cancel's acknowledgement")
    assert goal.result(3)[1].error_code == RESULT.CANCELED


def test_a_shutdown_transition_tells_the_goal_and_the_node_then_ends_as_any_other(ending):
    goal = ending.operator.send("drive on")
    ending.wait_until_moving()
    assert ending.operator.transition("shutdown")
    assert goal.result(3)[1].error_code == RESULT.CANCELED
    assert ending.operator.state() == "finalized" and not ending.is_moving
    ending.node.popen.send_signal(signal.SIGTERM)
    assert end_of(ending) == 0


def test_sigterm_tells_the_goal_how_it_ended(ending):
    goal = ending.operator.send("drive on")
    ending.wait_until_moving()
    ending.node.popen.send_signal(signal.SIGTERM)
    assert goal.result(3)[1].error_code == RESULT.CANCELED
    assert end_of(ending) == 0 and not ending.is_moving


def test_a_flood_of_goals_from_two_clients_ends_each_exactly_once(robot):
    clients = [robot.operator, Operator(robot.graph)]
    goals = [clients[n % 2].send("drive on" if n % 3 else "slow thoughts") for n in range(8)]
    late = [g.handle.cancel_goal_async() for g in goals[:-1]]  # of goals that were replaced: too late
    assert [g.result()[1].error_code for g in goals[:-1]] == [RESULT.CANCELED] * 7
    wait_until(lambda: all(c.done() for c in late), 5, "answers to late cancels")
    assert [c.result().goals_canceling for c in late] == [[]] * 7
    twice = [goals[-1].handle.cancel_goal_async() for _ in range(2)]
    assert goals[-1].result()[0] == "canceled"
    wait_until(lambda: all(c.done() for c in twice), 5, "both cancels' answers")
    assert not robot.is_moving and robot.operator.send("finish it").result()[0] == "succeeded"


@pytest.mark.parametrize("word", ["slow", "drive"])
def test_a_transition_right_after_a_goal_ends_it_in_every_phase(robot, word):
    for pause in (0.0, 0.02, 0.1, 0.3):
        goal = robot.operator.send(f"{word} on")
        time.sleep(pause)
        assert robot.operator.transition("deactivate")
        assert goal.result(3)[1].error_code == RESULT.CANCELED
        assert robot.operator.transition("activate")


def test_a_parameter_writes_no_line_of_its_own_into_the_log(robot):
    operator = robot.operator
    assert operator.transition("deactivate") and operator.transition("cleanup")
    assert operator.set(verifier="tcp://x\n[FATAL] forged\x1b[2J") == "" and operator.transition("configure")
    robot.node.wait_for("verifier tcp://x", 5)
    assert "\n[FATAL]" not in robot.node.text and "\x1b[2J" not in robot.node.text
    assert operator.transition("cleanup") and operator.set(verifier="tcp://127.0.0.1:5555") == ""

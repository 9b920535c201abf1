"""The action and the lifecycle of vlm_nav_node: real processes and DDS, a scripted decider, an ideal fake base."""

from __future__ import annotations

import signal
import time

import pytest
from spec_vlm_nav_interfaces.action import NavigateInstruction
from std_msgs.msg import String
from std_srvs.srv import Trigger

from tests.graph.harness import Graph, wait_until
from tests.graph.navigating import Robot

pytestmark = pytest.mark.graph
RESULT = NavigateInstruction.Result


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    with Graph(tmp_path_factory.mktemp("action")) as graph:
        made = Robot(graph)
        yield made
        made.close()


@pytest.fixture(autouse=True)
def ready(robot):
    robot.make_ready()


def test_a_goal_tells_what_it_does_and_ends_when_the_model_says_so(robot):
    goal = robot.operator.send("drive on", allowance_s=1.5)
    status, result = goal.result()
    assert (status, result.error_code) == ("aborted", RESULT.TIMEOUT) and "1.5 s" in result.error_msg
    assert result.decisions >= 1 and result.motions >= 1
    assert 1.4 < result.total_elapsed_time.sec + result.total_elapsed_time.nanosec * 1e-9 < 1.8
    moving = [f for f in goal.feedback if f.phase == f.MOVING]
    assert moving and moving[-1].action == "The next action is move forward 75 cm."
    assert moving[-1].reasoning == "I see it, ahead, clear." and moving[-1].decision_ms > 50
    left = [f.distance_left_m for f in moving]
    assert 0 < left[-1] < 0.75 and moving[-1].link == moving[-1].LINK_UP and moving[-1].link_rtt_ms == 1.5
    status, result = robot.operator.send("finish it", hint="see it").result()
    assert (status, result.error_code, result.error_msg) == ("succeeded", RESULT.NONE, "")
    assert result.hint_met and result.decisions == 1
    assert not robot.operator.send("finish it", hint="unicorn").result()[1].hint_met


def test_a_cancel_is_acknowledged_when_the_robot_stands(robot):
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    acknowledged = goal.cancel()
    assert goal.result()[0] == "canceled" and goal.result()[1].error_code == RESULT.CANCELED
    time.sleep(0.4)
    assert robot.stood_from(acknowledged)


def test_a_goal_that_replaces_another_is_accepted_when_the_robot_stands(robot):
    first = robot.operator.send("drive on")
    robot.wait_until_moving()
    second = robot.operator.send("slow thoughts")
    accepted = time.monotonic()
    status, result = first.result()
    assert (status, result.error_code) == ("aborted", RESULT.CANCELED) and "another" in result.error_msg
    time.sleep(0.4)
    assert robot.stood_from(accepted)
    second.cancel()
    assert second.result()[0] == "canceled"


def test_the_topic_goes_the_same_way_a_word_on_it_replaces_a_goal_and_stop_stops(robot):
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    robot.probe.say("instruction", String(data="slow thoughts"))
    assert goal.result()[1].error_code == RESULT.CANCELED
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    said = robot.probe.say("instruction", String(data="stop"))
    assert goal.result()[1].error_code == RESULT.CANCELED
    time.sleep(0.5)
    assert robot.stood_from(said + 0.3)


@pytest.mark.parametrize("words", ["stop", "do not\nmove", "st<|x|>op, hal<|stop|>t"])
def test_a_goal_that_means_stop_is_answered_at_once(robot, words):
    status, result = robot.operator.send(words).result(3)
    assert (status, result.error_code, result.error_msg) == ("succeeded", RESULT.NONE, "stopped")


@pytest.mark.parametrize(("words", "stopped_s"), [("drive on", 1.3), ("ponder", 2.5)])
def test_a_node_that_was_stopped_does_not_move_the_robot_by_itself_when_it_goes_on(robot, words, stopped_s):
    """In motion, and while it thinks: what it decided then is over."""
    goal = robot.operator.send(words)
    if words == "ponder":  # its answer, to drive, comes while it is stopped
        time.sleep(0.5)
    else:
        robot.wait_until_moving()
    robot.node.kill(signal.SIGSTOP)
    time.sleep(stopped_s)
    before = robot.base.x
    robot.node.kill(signal.SIGCONT)
    status, result = goal.result(8)
    assert (status, result.error_code) == ("aborted", RESULT.INTERNAL)
    assert "stalled" in result.error_msg or "nothing heard from the navigator" in result.error_msg
    time.sleep(1.0)
    assert robot.base.x - before < 0.02
    assert robot.operator.send("finish it").result()[0] == "succeeded"
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    goal.cancel()


@pytest.mark.parametrize(
    ("instruction", "code", "said"),
    [
        ("  ", RESULT.INVALID_INPUT, "empty instruction"),
        ("drive " * 200, RESULT.INVALID_INPUT, "the limit is 500"),
        ("babble away", RESULT.PARSE_FAILED, "without an action"),
        ("crash now", RESULT.INTERNAL, "scripted crash"),
        ("drive on", RESULT.INVALID_INPUT, "time_allowance must be 0 s or more, got -2 s"),
    ],
)
def test_a_goal_that_cannot_be_done_says_why(robot, instruction, code, said):
    allowance_s = -2 if "allowance" in said else 30
    status, result = robot.operator.send(instruction, allowance_s=allowance_s).result(15)
    assert (status, result.error_code) == ("aborted", code) and said in result.error_msg
    assert not robot.is_moving


def test_a_camera_that_stays_away_ends_the_goal_after_the_patience(robot):
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    robot.camera.on = False
    status, result = goal.result(6)
    assert (status, result.error_code) == ("aborted", RESULT.STALE_CAMERA) and "camera" in result.error_msg
    assert not robot.is_moving


def test_the_operators_stop_at_motion_node_ends_the_goal(robot):
    from std_msgs.msg import Empty

    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    said = robot.probe.say("stop", Empty())
    assert goal.result()[1].error_code == RESULT.CANCELED
    time.sleep(0.3)
    assert robot.stood_from(said + 0.3)


def test_deactivation_while_moving_stands_first_and_a_goal_meanwhile_is_told_so(robot):
    goal = robot.operator.send("drive on")
    robot.wait_until_moving()
    warned = robot.node.text.count("motion_node did not report")
    assert robot.operator.transition("deactivate")
    done = time.monotonic()
    assert robot.node.text.count("motion_node did not report") == warned
    assert goal.result()[1].error_code == RESULT.CANCELED and "deactivated" in goal.result()[1].error_msg
    status, result = robot.operator.send("drive on").result()
    assert (status, result.error_code) == (
        "aborted",
        RESULT.INVALID_INPUT,
    ) and "the node is not active" in result.error_msg
    time.sleep(0.3)
    assert robot.stood_from(done) and robot.probe.heard("supervision", done + 0.2) == []


def test_a_configuration_that_fails_says_why_and_can_be_mended(robot):
    assert robot.operator.transition("deactivate") and robot.operator.transition("cleanup")
    assert "does not exist" in robot.operator.set(draft_model="/nowhere/missing")
    assert "neither a folder in" in robot.operator.set(draft_model="missing")
    assert robot.operator.set(draft_model="org/missing") == ""
    assert robot.operator.set(autostart=False) == "" and robot.operator.transition("configure")
    wait_until(lambda: robot.operator.state() == "unconfigured", 5, "the way back")
    assert "the model cannot be loaded: no model in 'org/missing'" in robot.node.text
    assert robot.operator.set(draft_model="org/any") == "" and robot.operator.transition("configure")


def test_a_draft_that_cannot_be_reloaded_is_said_and_the_next_one_is_taken(robot):
    def reload(name):
        assert robot.operator.set(next_draft_model=name) == ""
        return robot.probe.call(Trigger, "vlm_nav_node/reload_draft", Trigger.Request())

    assert "File name too long" in reload("org/" + "x" * 5000).message
    for name, said in (
        ("org/missing", "the old draft model stays: no model in 'org/missing'"),
        ("org/any", "org/any drafts from the next decision on"),
        ("org/missing", "the old draft model stays"),
    ):
        count = robot.node.text.count(said)
        assert reload(name).success
        robot.node.wait_for(said, 5, count + 1)
    assert reload("org/slow").success
    assert all(robot.operator.transition(each) for each in ("deactivate", "cleanup", "configure", "activate"))
    robot.node.wait_for("org/slow is not used: the node was cleaned up", 5)
    assert robot.operator.set(next_draft_model="") == "" and robot.operator.state() == "active"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gamma": 7}, ""),
        ({"gamma": 0}, "out of range. Min: 1, Max: 32"),
        ({"method": "sd"}, ""),
        ({"method": "ar"}, "method ar refused: scripted"),
        ({"method": "picospec"}, "the wording is gone"),
        ({"draft_model": "org/other"}, "read when the node is configured"),
        ({"early_action": 1.0}, "Wrong parameter type"),
    ],
)
def test_parameters_change_live_or_are_refused_with_the_reason(robot, change, said):
    reason = robot.operator.set(**change)
    assert said in reason and bool(said) == bool(reason)


def test_the_sign_of_life_comes_at_10_hz_and_tells_the_cameras_age(robot):
    began = time.monotonic()
    time.sleep(1.0)
    heard = robot.probe.heard("supervision", began)
    assert 8 <= len(heard) <= 12 and 0 <= heard[-1].message.camera_age_s < 0.3
    robot.camera.on = False
    time.sleep(0.8)
    assert robot.probe.heard("supervision")[-1].message.camera_age_s > 0.5

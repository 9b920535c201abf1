"""Subscriptions that are asked, and what becomes of actions at a node's end; over DDS."""

import json
import math
import time
from unittest.mock import Mock

import pytest
from rclpy.action import ActionClient, ActionServer
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from spec_vlm_nav_interfaces.action import NavigateInstruction, RunMission
from spec_vlm_nav_interfaces.msg import MotionStatus
from std_msgs.msg import Bool, String

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.console.parameters import CONSOLE
from spec_vlm_nav.console.words import page_message
from spec_vlm_nav.missions.record import MissionStep, StepKind
from spec_vlm_nav.ros.basics import DeferringServer
from spec_vlm_nav.ros.console.command_publisher import CommandPublisher
from spec_vlm_nav.ros.console.robot import RosRobot, topic_of_robot
from spec_vlm_nav.ros.missions import Instructor
from spec_vlm_nav.ros.run import destroy
from spec_vlm_nav.ros.subscriptions import PolledTopic, subscribe
from tests.graph.harness import Graph, wait_until

pytestmark = pytest.mark.graph


@pytest.fixture
def node(tmp_path):
    with Graph(tmp_path) as graph:
        yield graph.probe


def test_what_came_since_is_told_once_in_order_with_its_time_and_no_more_than_is_kept(node):
    polled = PolledTopic(node.node, String, "words", depth=3)
    found = []

    def take():
        found.extend(polled.take_all())
        return len(found) >= 2

    began = time.time()
    for words in ("a", "b"):
        node.say("words", String(data=words))
    wait_until(take, 5, "both")
    assert [message.data for _, message in found] == ["a", "b"]
    assert began - 0.1 < found[0][0] <= found[1][0] < time.time() + 0.1
    assert polled.take_all() == []
    for number in range(9):
        node.say("words", String(data=str(number)))
    time.sleep(0.5)
    assert [message.data for _, message in polled.take_all()] == ["6", "7", "8"]


def test_nothing_says_that_a_console_s_e_stop_is_not_heard(node, capfd):
    pressed = []
    console = CommandPublisher(node.node, "/", MutuallyExclusiveCallbackGroup(), simulated=False)
    subscribe(node.node, Bool, "e_stop", pressed.append, latched=True)

    def press():
        console.estop()
        return pressed

    wait_until(press, 5, "the e-stop")
    time.sleep(0.2)
    assert "incompatible QoS" not in capfd.readouterr().err


def test_bytes_that_are_no_message_are_dropped_and_hide_none(node):
    polled = PolledTopic(node.node, String, "words", depth=3)
    node.say("words", String(data="a"))
    wait_until(polled.take_all, 5, "the first")
    for said in (bytes(4), String(data="b"), b"\0\1\0\0\xff\xff\xff\xff"):
        node.open(String, "words", True).publish(said)
    time.sleep(0.5)
    assert [message.data for _, message in polled.take_all()] == ["b"] and polled.take() is None


def test_actions_end_with_their_node(node):
    ActionClient(node.node, RunMission, "asked")
    ActionServer(node.node, RunMission, "done", lambda goal: RunMission.Result())
    actions = [one for one in node.node.waitables if isinstance(one, (ActionClient, ActionServer))]
    assert len(actions) == 2
    node.node.executor.shutdown()
    destroy(node.node)
    assert not any(one in actions for one in node.node.waitables)


def test_a_motion_left_that_is_no_number_does_not_hide_the_robots_state(node):
    """motion_node itself repeats the numbers of a command that it refuses for them."""
    robot = RosRobot(node.node, "", {p.name: p.default for p in CONSOLE}, lambda name, what: None)
    for left in (math.nan, math.inf, 0.5):
        robot._on_status(MotionStatus(left_distance_m=left, left_angle_rad=left, reason="refused"))
        told = json.loads(page_message("state", robot.state()))
        assert told["reason"] == "refused"
        assert told["left_deg"] == (29 if left == 0.5 else None)


def test_of_a_long_instruction_a_page_gets_the_beginning(node):
    robot = RosRobot(node.node, "", {p.name: p.default for p in CONSOLE}, lambda name, what: None)
    robot._on_instruction(String(data="find it " * 100_000))
    assert (
        robot.state()["instruction"].startswith("find it")
        and len(page_message("state", robot.state())) < 5000
    )


@pytest.mark.parametrize(
    ("console", "given", "robot", "shown"),
    [
        ("/", "/odom", "/", "/odom"),
        ("/", "/odom", "/one/", "/one/odom"),
        ("/one", "/one/odom", "/one/", "/one/odom"),
        ("/one", "/one/odom", "/two/", "/two/odom"),
        ("/one", "/one/odom", "/", "/odom"),
        ("/one", "/utlidar/robot_odom", "/one/", "/utlidar/robot_odom"),
        ("/", "/one/front/odom", "/one/", "/one/front/odom"),
    ],
)
def test_a_topic_of_any_name_is_shown_of_the_robot_that_it_is_of(console, given, robot, shown):
    own = Mock(**{"get_namespace.return_value": console, "resolve_topic_name.return_value": given})
    assert topic_of_robot(own, "odom", robot) == shown


def loses_goals(node, kind, name, client):
    """An action server that forgets each goal once it has accepted it, like one that is restarted."""
    server = DeferringServer(node.node, kind, name, lambda goal: None)
    wait_until(client.server_is_ready, 10, "the server")
    send = client.send_goal_async

    def send_and_lose(*given, **more):
        sent = send(*given, **more)
        sent.add_done_callback(lambda _: server._goal_handles.clear())
        return sent

    client.send_goal_async = send_and_lose


def test_a_goal_that_its_server_does_not_know_is_not_done(node):
    """The server's answer is an empty result, whose code is NONE."""
    instructor, ended = Instructor(node.node), []
    loses_goals(node, NavigateInstruction, "navigate_instruction", instructor._client)
    instructor.give(MissionStep(StepKind.INSTRUCTION, "go"), lambda *said: ended.append(said))
    wait_until(lambda: ended, 10, "an end")
    assert ended[0][0] is ErrorCode.INTERNAL and "restarted" in ended[0][1]


def test_silence_of_a_goal_counts_from_its_acceptance_which_may_take_a_while(node):
    """A slow start would otherwise pause a mission; a server that never accepts would leave it waiting for ever."""
    instructor = Instructor(node.node)
    instructor._client = client = Mock()
    given = time.monotonic()
    instructor.give(MissionStep(StepKind.INSTRUCTION, "go"), lambda *said: None)
    assert instructor.silent_s(given + 4.0) == 0.0
    assert instructor.silent_s(given + 9.0) == pytest.approx(4.0, abs=0.5)
    accepted = client.send_goal_async.return_value.add_done_callback.call_args.args[0]
    accepted(Mock())
    assert instructor.silent_s(given + 9.0) == pytest.approx(9.0, abs=0.5)
    instructor.drop()
    assert instructor.silent_s(given + 99.0) == 0.0


def test_a_mission_that_its_node_does_not_know_is_not_told_as_done(node):
    robot, told = RosRobot(node.node, "", {p.name: p.default for p in CONSOLE}, lambda name, what: None), []
    loses_goals(node, RunMission, "run_mission", robot._missions)
    robot.run_mission("finish", lambda *said: told.append(said))
    wait_until(lambda: told, 10, "an answer")
    assert told[0][0] is False and "restarted" in told[0][1]

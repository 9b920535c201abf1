"""Missions over real processes and DDS: a scripted decider and an ideal fake base, everything else real."""

from __future__ import annotations

import json
import math
import time

import pytest
from rclpy.action import ActionClient
from spec_vlm_nav_interfaces.action import RunMission
from spec_vlm_nav_interfaces.msg import Presence
from spec_vlm_nav_interfaces.srv import ChangeMission
from std_msgs.msg import Bool, Empty, String

from spec_vlm_nav.missions.record import MissionPhase, load
from specnav.errors import UsageError
from specnav.mission.live import mission_client
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.navigating import Robot
from tests.graph.stack import speed

pytestmark = pytest.mark.graph
DRIVE = "steps:\n- {instruction: drive on, max_s: 60}\n"


class MissionRobot(Robot):
    """The robot with a mission_node."""

    def __init__(self, graph, file):
        super().__init__(graph)
        self.file = file
        self.missions = self.start_missions()
        self._client = ActionClient(self.probe.node, RunMission, "run_mission")
        self._change = self.probe.node.create_client(ChangeMission, "mission_node/change")
        assert self._client.wait_for_server(10)

    def start_missions(self, module="spec_vlm_nav.ros.nodes.mission_node"):
        node = self.graph.start("mission_node", module, *ros_args(state_file=str(self.file)))
        node.wait_for("ready")
        return node

    def run(self, text):
        sent = self._client.send_goal_async(RunMission.Goal(mission=text))
        wait_until(sent.done, 5, "the goal's acceptance")
        return sent.result().get_result_async()

    def order(self, order, **values):
        assert self._change.wait_for_service(10)
        for _ in range(5):  # a killed server is still counted, and a new one not yet
            asked = self._change.call_async(ChangeMission.Request(order=order, **values))
            until = time.monotonic() + 1.5
            while not asked.done() and time.monotonic() < until:
                time.sleep(0.01)
            if asked.done():
                return asked.result()
        raise AssertionError(f"no answer to {order}:\n{self.missions.text}")

    def result(self, future, timeout_s=30):
        wait_until(future.done, timeout_s, "the mission's end", lambda: self.missions.text)
        return future.result().result

    def phase(self):
        return json.loads(self.order("look").results)["phase"]

    def stands_within(self, at, seconds):
        wait_until(lambda: not self.is_moving, seconds + 2, "standing")
        time.sleep(0.2)
        return all(speed(h) == 0 for h in self.probe.heard("cmd_vel", at + seconds))


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("missions")
    with Graph(folder) as graph:
        robot = MissionRobot(graph, folder / "mission.json")
        yield robot
        robot.close()


@pytest.fixture(autouse=True)
def rested(robot):
    yield
    if not robot.missions.is_up:
        robot.missions = robot.start_missions()
    robot.probe.say("e_stop_reset", Empty())
    robot.order("cancel")
    robot.probe.say("vlm_nav_node/cancel", Empty())
    wait_until(lambda: not robot.is_moving, 5, "standing")
    time.sleep(0.2)  # the next mission is not to be paused by what was said to this one


def test_turns_ways_back_and_instructions_go_through_the_gates_of_both_nodes(robot):
    """The sessions alternate: after a turn of the mission's own, vlm_nav_node is obeyed again."""
    start = robot.base.x, robot.base.y
    future = robot.run(
        "steps:\n- turn_deg: 60\n- {instruction: drive on, max_m: 0.5, on_failure: next}\n"
        "- turn_deg: -20\n- finish it\n- return: start\n"
    )
    result = robot.result(future, 60)
    told = json.loads(result.results)
    ended = [(step["progress"], step["code"]) for step in told["steps"]]
    done = ("done", "NONE")
    assert ended == [done, ("failed", "TOO_FAR"), done, done, done], robot.missions.text
    assert result.error_code == RunMission.Result().error_code + 17, "the code of the first failure"
    end = robot.base.x, robot.base.y
    assert math.hypot(end[0] - start[0], end[1] - start[1]) < 0.3
    assert result.distance_m > 0.8 and not robot.is_moving


def test_where_a_mission_begins_is_known_from_its_first_step_on(robot):
    for step in ("wait_s: 0", "return: start"):  # after the first, all nodes have been heard
        result = robot.result(robot.run(f"steps: [{{{step}}}]"))
        assert (result.error_code, result.error_msg) == (0, "")


def test_pause_stands_and_resume_goes_on(robot):
    future = robot.run(DRIVE)
    robot.wait_until_moving()
    at = time.monotonic()
    assert robot.order("pause").success
    assert robot.stands_within(at, 0.5)
    time.sleep(0.5)
    assert not robot.is_moving and not future.done()
    assert robot.order("resume").success
    robot.wait_until_moving()
    assert robot.order("cancel").success
    assert robot.result(future).error_code == 1


def test_a_stop_pauses_and_an_estop_does_until_it_is_reset(robot):
    robot.run(DRIVE)
    robot.wait_until_moving()
    at = robot.probe.say("stop", Empty())
    assert robot.stands_within(at, 0.3) and robot.phase() == "paused"
    assert robot.order("resume").success
    robot.wait_until_moving()
    at = robot.probe.say("e_stop", Bool(data=True))
    assert robot.stands_within(at, 0.3)
    refused = robot.order("resume")
    assert not refused.success and "latched" in refused.message
    robot.probe.say("e_stop_reset", Empty())
    wait_until(lambda: robot.order("resume").success, 5, "the resume after the reset")
    robot.probe.say("instruction", String(data="go\n[ERROR] \x1b[31mforged"))
    wait_until(lambda: robot.phase() == "paused", 5, "the pause")
    why = json.loads(robot.order("look").results)["why"]
    # On a busy machine the end of the mission's own goal is heard before the instruction that ended it.
    assert why in ('another instruction: "go [ERROR] ?[31mforged"', "another instruction arrived")
    assert f"mission paused: {why}" in robot.missions.text and "\x1b" not in robot.missions.text


def test_a_mission_given_at_the_end_of_another_leaves_its_client_with_a_result(robot):
    told, at = "mission_node/mission", time.monotonic()
    robot.probe.listen(String, told)
    first = robot.run("steps:\n- finish one\n")
    wait_until(lambda: any('"ended"' in h.message.data for h in robot.probe.heard(told, at)), 9, "the end")
    second = robot.run("steps:\n- wait_s: 0\n")
    assert [robot.result(future, 5).error_code for future in (first, second)] == [0, 0]


def test_a_killed_mission_node_stops_the_robot_and_the_mission_goes_on_after_a_restart(robot):
    robot.run("steps:\n- finish one\n- {instruction: drive on, max_s: 60}\n- finish two\n")
    robot.wait_until_moving()
    at = robot.missions.kill()
    assert robot.stands_within(at, 1.2), "motion_node's dead man's switch"
    assert "fell silent" in robot.mover.text
    robot.missions = robot.start_missions()
    told = json.loads(robot.order("look").results)
    assert [s["progress"] for s in told["steps"]] == ["done", "pending", "pending"]
    assert told["phase"] == "paused"
    time.sleep(1.0)
    assert not robot.is_moving, "nothing goes on by itself"
    wait_until(lambda: robot.order("resume").success, 5, "the resume")
    robot.wait_until_moving()


def test_a_client_that_ends_by_an_error_takes_its_mission_with_it(robot):
    def say(words):
        raise BrokenPipeError  # the program that read its output has ended

    with mission_client(domain=robot.graph.domain) as client, pytest.raises(BrokenPipeError):
        client.run(DRIVE, say)
    assert robot.phase() == "ended" and not robot.is_moving


def test_a_client_is_told_that_mission_node_was_restarted_and_no_longer_knows_its_mission(robot):
    def say(words):
        if words.startswith("step 1 ") and robot.missions.is_up:
            robot.missions.kill()
            robot.missions = robot.start_missions()

    with mission_client(domain=robot.graph.domain) as client, pytest.raises(UsageError, match="order resume"):
        client.run(DRIVE, say)
    assert robot.phase() == "paused" and not robot.is_moving


def test_a_deciding_node_restarted_so_fast_that_nobody_missed_it_pauses(robot):
    """Its action server comes back without the goal, whose result never comes."""
    robot.run("steps:\n- ponder on\n")
    wait_until(lambda: robot.phase() == "running", 5, "the start")
    time.sleep(0.5)
    robot.node.kill()
    robot.node = robot.start_deciding()
    wait_until(lambda: robot.phase() == "paused", 10, "the pause", lambda: robot.missions.text)
    assert not robot.is_moving

    def goes_on():  # it may pause once more, where the old node is missed before the new one is heard
        if robot.phase() == "paused":
            robot.order("resume")
        return robot.is_moving

    wait_until(goes_on, 10, "motion", lambda: robot.missions.text)


def test_a_lost_deciding_node_pauses(robot):
    robot.run("steps:\n- wait_s: 60\n")
    wait_until(lambda: robot.phase() == "running", 5, "the start")
    robot.operator.transition("deactivate")
    wait_until(lambda: robot.phase() == "paused", 5, "the pause", lambda: robot.missions.text)
    assert "vlm_nav_node is not heard" in robot.order("look").results
    robot.operator.transition("activate")
    wait_until(lambda: robot.order("resume").success, 5, "the resume")


def test_a_slow_disk_does_not_keep_the_mission_from_its_heartbeats(robot):
    """They come from the thread that saved: motion_node missed them and stopped the robot."""
    assert robot.missions.end() == 0
    robot.missions = robot.start_missions("tests.graph.slow_disk_missions")
    robot.order("look")
    time.sleep(1.0)  # the action's client has found it, too
    robot.run(DRIVE)
    robot.wait_until_moving()
    time.sleep(4.0)
    assert robot.phase() == "running", robot.missions.text
    robot.order("pause")
    assert robot.missions.end() == 0
    assert load(robot.file).phase is MissionPhase.PAUSED


def test_what_cannot_be_carried_out_is_refused_with_the_line(robot):
    result = robot.result(robot.run("steps:\n- turn_deg: ninety\n"))
    assert result.error_code == 8 and ":2: turn_deg: ninety; allowed: -360 to 360" in result.error_msg
    robot.run("steps:\n- wait_s: 60\n")
    wait_until(lambda: robot.phase() in ("running", "waiting"), 5, "the start")
    assert "under way" in robot.result(robot.run("finish")).error_msg
    refused = robot.order("dance")
    assert not refused.success and "pause, resume" in refused.message


def test_without_an_operator_nothing_moves_where_one_is_required(robot):
    """On a motion_node of its own parameters; the same graph, one after the other."""
    robot.mover.end()
    robot.mover = robot.graph.start(
        "motion_node", "spec_vlm_nav.ros.nodes.motion_node", *ros_args(max_linear=0.3, require_operator=True)
    )
    robot.mover.wait_for("ready")
    time.sleep(0.5)
    robot.operator.send("drive on")
    time.sleep(1.5)
    assert not robot.is_moving
    hold = Presence(holder="anna", kind=Presence.OPERATOR, holds=True)
    robot.operator.send("drive on")
    until = time.monotonic() + 10
    while not robot.is_moving and time.monotonic() < until:
        at = robot.probe.say("presence", hold)
        time.sleep(0.1)
    assert robot.is_moving
    assert robot.stands_within(at, 1.2), "anna fell silent"
    robot.probe.say("presence", hold)
    time.sleep(0.4)
    assert not robot.is_moving, "and it stays so, until the next instruction"


def test_a_kept_mission_that_can_neither_be_read_nor_put_aside_is_said_and_the_node_goes_on(robot, tmp_path):
    (tmp_path / "mission.json").write_text("nonsense")
    (tmp_path / "mission.bad" / "taken").mkdir(parents=True)
    arguments = ros_args({"__ns": "/other"}, state_file=str(tmp_path / "mission.json"))
    node = robot.graph.start("other", "spec_vlm_nav.ros.nodes.mission_node", *arguments)
    node.wait_for("mission_node ready")
    assert "holds no mission" in node.text and "cannot be kept" in node.text
    assert node.end() == 0

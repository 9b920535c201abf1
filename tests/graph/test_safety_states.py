"""What keeps the robot from moving outlives motion_node; limits are not loosened in motion, nor forgers obeyed."""

from __future__ import annotations

import itertools
import json
import signal
import time

import pytest
from geometry_msgs.msg import Twist
from rcl_interfaces.srv import SetParameters, SetParametersAtomically
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus, Presence, RobotState, Supervision
from spec_vlm_nav_interfaces.srv import LoosenLimits
from std_msgs.msg import Bool, String
from std_srvs.srv import Trigger

from specnav.errors import HarnessError
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph
NUMBERS = itertools.count(1)
LATCHED = QoSProfile(
    depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL
)
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
UNDER_WAY = (MotionStatus.MOVING, MotionStatus.SETTLING, MotionStatus.REACHED)
HELD_M, MOVED_M = 0.02, 0.04  # less is not a motion, more is one


class Mover(Graph):
    """motion_node, started again and again, on an ideal base."""

    def begin(self):
        self.base = FakeBase(self)
        self.probe.listen(MotionStatus, "motion_status")
        self.probe.listen(Twist, "cmd_vel")
        self.probe.listen(String, "safety_changes")
        return self

    def start_node(self, **parameters):
        parameters = {"supervisor_timeout_s": 0.0, "geofence_m": 2.0, **parameters}
        self.node = self.start("motion_node", "spec_vlm_nav.ros.nodes.motion_node", *ros_args(**parameters))
        self.node.wait_for("ready")
        at = time.monotonic()
        wait_until(lambda: self.probe.heard("motion_status", at) != [], 10, "motion_status")
        for _ in range(3):  # odometry, and publishers that were there before, are found meanwhile
            self.introduce(1)
            time.sleep(0.1)
        return self

    def introduce(self, session):
        """As a deciding node does ten times a second, also to a motion_node that has just come."""
        life = Supervision(session=session, camera_age_s=-1.0, verifier_age_s=-1.0)
        self.probe.say("supervision", self.probe.introduce(life))

    def restart(self, **parameters):
        self.node.kill(signal.SIGKILL)
        self.node.popen.wait(5)
        return self.start_node(**parameters)

    def move(self, session=1, distance=0.5, tries=8, **more):
        """Metres that the robot moves after a command of the next instruction."""
        number, before = next(NUMBERS), self.base.x
        message = MotionCommand(kind=MotionCommand.MOVE, session=session, instruction=number, sequence=number)
        message.distance_m, message.deadline.sec = distance, 4
        for name, value in more.items():
            setattr(message, name, value)
        self.probe.order("motion_command", message)
        wait_until(
            lambda: self.base.x - before > MOVED_M or self.refused(number),
            5,
            "an answer",
            lambda: self.node.text,
        )
        if self.refused(number):
            time.sleep(0.3)
        if f"command {number} REFUSED: from an unknown session" in self.node.text and tries > 1:
            # DDS delivers commands to a node that was started again, but no signs of life yet.
            time.sleep(1.0)
            self.introduce(session)
            return self.move(session, distance, tries - 1, **more)
        return self.base.x - before

    def refused(self, number):
        heard = [h.message for h in self.probe.heard("motion_status") if h.message.sequence == number]
        return any(status.state not in UNDER_WAY for status in heard)

    def stand(self, session=1):
        hold = MotionCommand(kind=MotionCommand.HOLD, session=session, sequence=next(NUMBERS))
        at = time.monotonic()
        self.probe.order("motion_command", hold)

        def stands():
            heard = self.probe.heard("motion_status", at)
            return heard != [] and heard[-1].message.standing

        wait_until(stands, 5, "standing")

    def held(self):
        return self.probe.last("motion_status").message

    def reset(self):
        return self.probe.call(Trigger, "motion_node/reset", Trigger.Request())

    def loosen(self, reason="a field without a fence", **values):
        messages = [Parameter(n, value=v).to_parameter_msg() for n, v in values.items()]
        request = LoosenLimits.Request(parameters=messages, reason=reason)
        return self.probe.call(LoosenLimits, "motion_node/loosen_limits", request)

    def press(self, qos):
        self.button = self.probe.node.create_publisher(Bool, "e_stop", qos)
        self.button.publish(Bool(data=True))
        if qos is BEST_EFFORT:
            # Nothing repeats such a message: the finger stays on the button until the node has found it.
            wait_until(lambda: self.button.publish(Bool(data=True)) or self.held().estopped, 5, "the e-stop")


@pytest.fixture
def graph(tmp_path):
    with Mover(tmp_path) as running:
        yield running.begin()
        running.base.close()


def test_an_e_stop_latched_before_the_start_holds_and_a_reset_releases(graph):
    graph.press(LATCHED)
    graph.start_node()
    wait_until(lambda: graph.held().estopped, 5, "the e-stop")  # DDS has to find its publisher first
    assert graph.move() < HELD_M
    assert graph.reset().success and graph.move() > MOVED_M
    graph.restart()  # the topic says it still, to every new node
    wait_until(lambda: graph.held().estopped, 5, "the e-stop")
    assert graph.move() < HELD_M


def test_a_best_effort_button_is_heard_and_its_e_stop_outlives_the_node(graph):
    graph.start_node()
    assert graph.move() > MOVED_M
    graph.press(BEST_EFFORT)
    wait_until(lambda: graph.held().estopped, 2, "the e-stop")
    graph.restart()
    assert graph.held().estopped and graph.move() < HELD_M and "held since before" in graph.node.text
    assert graph.reset().success and graph.move() > MOVED_M
    graph.restart()
    assert not graph.held().estopped and graph.move() > MOVED_M  # nor does it come back


def test_lost_odometry_an_operators_stop_and_the_fence_outlive_the_node(graph, tmp_path):
    graph.start_node(geofence_m=0.8)
    assert graph.move() > MOVED_M
    began_at = graph.base.x
    graph.probe.call(Trigger, "motion_node/stop", Trigger.Request())
    graph.restart(geofence_m=0.8)
    assert graph.held().held_by == "stopped by the operator"
    assert graph.move(instruction=0) < HELD_M  # an instruction that is over
    assert graph.move(distance=0.7) > MOVED_M
    # The circle is that of the instruction, not of the start.
    instruction = graph.probe.last("motion_status").message and next(NUMBERS) - 1
    graph.restart(geofence_m=0.8)
    state = json.loads((tmp_path / "ros" / "spec_vlm_nav" / "motion_node.json").read_text())
    assert state["fence"][0] >= began_at - 0.01 and state["instruction"] == instruction
    assert graph.move(distance=0.79, instruction=instruction) < HELD_M
    wait_until(
        lambda: any(h.message.state == MotionStatus.GEOFENCE for h in graph.probe.heard("motion_status")),
        2,
        "it",
    )
    graph.node.end(signal.SIGTERM)
    state |= {"lost": ["WRONG", "moves the wrong way"], "wrong": [0, 2]}
    (tmp_path / "ros" / "spec_vlm_nav" / "motion_node.json").write_text(json.dumps(state))
    graph.start_node()
    assert "moves the wrong way" in graph.held().held_by and graph.move() < HELD_M
    graph.reset()
    assert graph.move() > MOVED_M


@pytest.mark.parametrize("what", ["broken", "unwritable"])
def test_a_state_that_cannot_be_read_or_kept_is_an_e_stop(graph, tmp_path, what):
    file = tmp_path / "state.json"
    if what == "broken":
        file.write_text('{"estopped_by": ')
    else:
        file.write_text("")
        file = file / "below a file.json"
    graph.start_node(state_file=str(file))
    assert graph.held().estopped and graph.move() < HELD_M
    answer = graph.reset()
    assert answer.success == (what == "broken")
    if what == "broken":
        assert graph.move() > MOVED_M
    else:
        assert "e-stop again: the latches cannot be stored" in answer.message
        assert graph.move() < HELD_M


def test_limits_are_tightened_in_motion_and_loosened_only_by_an_operator_where_the_robot_stands(graph):
    graph.start_node(supervisor_timeout_s=2.0, camera_timeout_s=1.5, max_linear=0.2)
    loose = {
        "geofence_m": 0.0,
        "supervisor_timeout_s": 0.0,
        "camera_timeout_s": 0.0,
        "response_watched": False,
    }
    assert graph.move(distance=1.0) > MOVED_M
    for name, value in loose.items():
        with pytest.raises(HarnessError, match=f"parameter {name} = .* refused: .*loosen_limits"):
            graph.probe.set_parameters("motion_node", **{name: value})
    assert "stand" in graph.loosen(**loose).message  # nor by an operator: it moves
    graph.probe.set_parameters("motion_node", geofence_m=1.5, max_linear=0.15)
    graph.stand()
    with pytest.raises(HarnessError, match="geofence_m"):
        graph.probe.set_parameters("motion_node", geofence_m=0.0)
    assert not graph.loosen(reason="  ", **loose).success
    assert not graph.loosen(no_such_limit=1.0).success
    assert "geofence_m" in graph.loosen(geofence_m=-1.0).message
    assert graph.probe.get_parameter("motion_node", "geofence_m") == 1.5
    answer = graph.loosen(**loose)
    assert answer.success and "geofence_m 1.5 to 0.0" in answer.message
    assert graph.probe.get_parameter("motion_node", "response_watched") is False
    wait_until(lambda: graph.probe.heard("safety_changes") != [], 2, "what the black box hears")
    said = json.loads(graph.probe.last("safety_changes").message.data)
    assert said["reason"] == "a field without a fence" and said["changed"]["geofence_m"] == [1.5, 0.0]


def test_with_safety_locked_nobody_loosens_anything_and_tightening_goes_on(graph):
    graph.start_node(safety_locked=True)
    assert graph.move() > MOVED_M
    graph.stand()
    assert "safety_locked" in graph.loosen(geofence_m=0.0).message
    with pytest.raises(HarnessError, match="safety_locked is true"):
        graph.probe.set_parameters("motion_node", geofence_m=0.0)
    with pytest.raises(HarnessError, match="safety_locked"):
        graph.probe.set_parameters("motion_node", safety_locked=False)
    graph.probe.set_parameters("motion_node", geofence_m=1.0)


def test_a_value_of_no_known_type_is_refused_and_the_node_goes_on(graph):
    graph.start_node()
    odd = Parameter("geofence_m", value=1.0).to_parameter_msg()
    odd.value.type = 99
    why = "parameter geofence_m refused: its value is of an unknown type 99"

    def answer(kind, service, **more):
        return graph.probe.call(kind, f"motion_node/{service}", kind.Request(parameters=[odd], **more))

    assert [r.reason for r in answer(SetParameters, "set_parameters").results] == [why]
    assert answer(SetParametersAtomically, "set_parameters_atomically").result.reason == why
    assert answer(LoosenLimits, "loosen_limits", reason="a field").message == why
    assert graph.node.is_up and graph.probe.get_parameter("motion_node", "geofence_m") == 2.0
    assert graph.move() > MOVED_M


def test_foreign_words_write_no_line_of_their_own_into_the_log(graph):
    graph.start_node(robot_state_timeout_s=5.0)
    forged, escape = "\n[FATAL] [motion_node]: forged", "\x1b[2J"
    graph.probe.say("robot_state", RobotState(ready=False, reason=f"lies down{forged}{escape}"), reliable=False)
    assert graph.move() < HELD_M
    graph.probe.say("presence", Presence(holder=f"page{forged}{escape}", holds=True))
    graph.probe.say("instruction", String(data=f"{escape}stop{forged}"))
    for said in ("NOT_READY: lies down", "stopped by the operator (instruction", "(page"):
        graph.node.wait_for(said, 5)
    assert escape not in graph.node.text and "\n[FATAL]" not in graph.node.text


def test_forged_moves_are_not_obeyed(graph):
    """In nobody's name, in the name of a session before and after its first command, and said again."""
    graph.start_node()

    def forge(**fields):
        before = graph.base.x
        message = MotionCommand(kind=MotionCommand.MOVE, instruction=999, sequence=9_999, distance_m=0.5)
        message.deadline.sec = 4
        for name, value in fields.items():
            setattr(message, name, value)
        graph.probe.say("motion_command", message)
        time.sleep(0.4)
        return abs(graph.base.x - before)

    assert forge(session=5) < HELD_M  # nothing was heard of it
    graph.introduce(7)
    time.sleep(0.2)
    assert forge(session=7) < HELD_M  # it has not commanded anything yet
    heard = []
    graph.probe.node.create_subscription(MotionCommand, "motion_command", heard.append, 10)
    time.sleep(0.3)
    assert graph.move(session=7) > MOVED_M
    again = next(message for message in heard if any(message.nonce))
    graph.stand(session=7)  # else the way on from here, until the forged command ends the true one, is counted
    assert forge(session=7) < HELD_M
    assert forge(session=7, nonce=again.nonce) < HELD_M
    graph.probe.say("supervision", Supervision(session=7, commitment=[1] * 32))  # another sender says so
    time.sleep(0.1)
    assert forge(session=7, nonce=[1] * 32) < HELD_M
    assert graph.node.text.count("its nonce is not the next of its session") == 4

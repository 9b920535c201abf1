"""motion_node with the nav2 back-end as a real process, against a stand-in of Nav2's behavior_server."""

from __future__ import annotations

import itertools
import re
import signal
import time

import pytest
from geometry_msgs.msg import Twist
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus, Supervision
from std_msgs.msg import Empty, String

from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, ros_args, wait_until
from tests.graph.stand_ins import stand_in

pytestmark = pytest.mark.graph
NODE = "spec_vlm_nav.ros.nodes.motion_node"
SEQUENCE = itertools.count(1)


class Nav2Graph(Graph):
    """motion_node, a server and a base."""

    def begin(self):
        self.overlay = str(stand_in("nav2_msgs"))
        self.base = FakeBase(self)
        self.probe.listen(MotionStatus, "motion_status")
        self.probe.listen(Twist, "cmd_vel")
        self.start_server()
        self.start_mover()
        return self

    def start_server(self):
        self.server = self.start("behavior_server", "tests.graph.nav2_server", PYTHONPATH=self.overlay)
        self.server.wait_for("ready")
        self.acquainted = False

    def acquaint(self):
        """Wait until a motion is carried out: odometry and servers are found, and the probe by the node."""

        def turned():
            began = self.move(angle=0.1)
            ended = (MotionStatus.REACHED, MotionStatus.REFUSED, MotionStatus.STALE_ODOM)
            return self.status(began, *ended, timeout_s=4).state == MotionStatus.REACHED

        if not self.acquainted:
            wait_until(turned, 15, "a first motion")
            self.acquainted = True

    def start_mover(self):
        arguments = ros_args(motion_backend="nav2", max_linear=0.4, supervisor_timeout_s=0.0)
        self.mover = self.start("motion_node", NODE, *arguments, PYTHONPATH=self.overlay)
        self.mover.wait_for("ready")
        began = self.session = time.monotonic_ns()
        wait_until(lambda: self.probe.heard("motion_status", began * 1e-9) != [], 10, "a heartbeat")
        wait_until(lambda: self.probe.node.count_subscribers("motion_command") == 1, 10, "a subscriber")
        self.acquainted = False

    def mode(self, mode):
        seen = self.server.text.count(f"mode {mode}")

        def heard():
            self.probe.say("nav2_mode", String(data=mode))
            time.sleep(0.05)
            return self.server.text.count(f"mode {mode}") > seen

        wait_until(heard, 10, f"mode {mode}")

    def move(self, distance=0.0, angle=0.0, topic="motion_command", session=None):
        sequence = next(SEQUENCE)
        message = MotionCommand(
            kind=MotionCommand.MOVE, session=session or self.session, instruction=sequence, sequence=sequence,
            distance_m=distance, angle_rad=angle,
        )  # fmt: skip
        message.deadline.sec = 5
        return self.probe.order(topic, message)

    def status(self, since, *states, timeout_s=8.0):
        """The first status since then in one of the states, and when."""
        found = []

        def there():
            found[:] = [h for h in self.probe.heard("motion_status", since) if h.message.state in states]
            return found != []

        wait_until(there, timeout_s, f"a status {states}", lambda: self.mover.text + self.server.text)
        return found[0].message

    def driving(self):
        seen = self.server.text.count("goal x")
        began = self.move(distance=0.9)
        self.server.wait_for("goal x", count=seen + 1)
        wait_until(lambda: self.probe.heard("cmd_vel", began) != [], 5, "Nav2's velocity")
        return began


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    with Nav2Graph(tmp_path_factory.mktemp("nav2")) as running:
        yield running.begin()
        running.base.close()


@pytest.fixture(autouse=True)
def obedient(graph):
    if graph.server.popen.poll() is not None:
        graph.start_server()
    if graph.mover.popen.poll() is not None:
        graph.start_mover()
    graph.mode("obey")
    graph.acquaint()


def test_a_distance_and_a_turn_are_carried_out_by_nav2(graph):
    x, yaw = graph.base.x, graph.base.yaw
    began = graph.move(distance=0.3)
    assert graph.status(began, MotionStatus.REACHED).done_distance_m == pytest.approx(0.3, abs=0.06)
    began = graph.move(angle=0.5)
    assert graph.status(began, MotionStatus.REACHED).done_angle_rad == pytest.approx(0.5, abs=0.12)
    assert graph.base.x - x == pytest.approx(0.3, abs=0.06) and graph.base.yaw - yaw > 0.4
    began = graph.move(angle=-0.5)
    graph.status(began, MotionStatus.REACHED)
    driven = re.search(r"goal x 0.300 speed (\S+) allowance (\S+)", graph.server.text)
    assert driven is not None
    assert float(driven.group(1)) == pytest.approx(0.4) and 4.8 < float(driven.group(2)) <= 5.0


def test_backing_off_is_a_negative_distance_at_a_negative_speed(graph):
    graph.status(graph.move(distance=-0.1), MotionStatus.REACHED)
    assert "goal x -0.100 speed -0.400" in graph.server.text


def test_an_abort_is_told_with_nav2_s_reason_where_there_is_one(graph):
    graph.mode("abort")
    ended = (MotionStatus.COLLISION_AHEAD, MotionStatus.BLOCKED)
    status = graph.status(graph.move(distance=0.5), *ended)
    assert status.state == MotionStatus.COLLISION_AHEAD and "a wall" in status.reason
    status = graph.status(graph.move(angle=0.5), *ended)  # a result without error codes
    assert status.state == MotionStatus.BLOCKED and "Nav2 gave up" in status.reason


def test_a_goal_that_nav2_rejects_is_a_command_refused(graph):
    graph.mode("reject")
    status = graph.status(graph.move(distance=0.5), MotionStatus.REFUSED)
    assert "Nav2 rejected the goal" in status.reason


def test_stop_cancels_the_goal_at_once(graph):
    graph.driving()
    seen = graph.server.text.count("canceled")
    said = graph.probe.say("stop", Empty())
    assert graph.status(said, MotionStatus.STOPPED).reason == "stopped by the operator"
    graph.server.wait_for("canceled", 2, count=seen + 1)
    zero = [h for h in graph.probe.heard("cmd_vel", said) if h.message.linear.x == 0]
    assert zero[0].at - said < 0.15
    time.sleep(0.3)
    assert graph.probe.heard("cmd_vel")[-1].message.linear.x == 0


def test_a_server_that_will_not_cancel_is_asked_again_and_gets_zeros_in_between(graph):
    graph.driving()
    graph.mode("ignore")
    seen, ended = (graph.server.text.count(words) for words in ("cancel asked for", "canceled"))
    said = graph.probe.say("stop", Empty())
    graph.server.wait_for("cancel asked for", 2, count=seen + 3)
    zeros = [h for h in graph.probe.heard("cmd_vel", said) if h.message.linear.x == 0]
    assert zeros[0].at - said < 0.15 and len(zeros) >= 4
    status = graph.status(graph.move(angle=0.5), MotionStatus.MOVING, MotionStatus.REFUSED)
    if status.state == MotionStatus.MOVING:  # taken, then not begun: one behaviour at a time
        status = graph.status(said, MotionStatus.REFUSED)
    assert "has not ended in Nav2 yet" in status.reason
    graph.mode("obey")
    graph.server.wait_for("canceled", 2, count=ended + 1)


def test_a_fault_of_a_sense_cancels_the_goal(graph):
    graph.driving()
    seen = graph.server.text.count("canceled")
    graph.base.publish_odometry = False
    try:
        graph.status(time.monotonic(), MotionStatus.STALE_ODOM, timeout_s=2)
        graph.server.wait_for("canceled", 2, count=seen + 1)
    finally:
        graph.base.publish_odometry = True
    time.sleep(0.3)


def test_sigterm_while_nav2_drives_cancels_the_goal(graph):
    graph.driving()
    seen = graph.server.text.count("canceled")
    assert graph.mover.end(signal.SIGTERM) == 0
    graph.server.wait_for("canceled", 2, count=seen + 1)
    assert "Traceback" not in graph.mover.text


def test_a_server_that_was_killed_is_given_up_within_its_time(graph):
    graph.server.end(signal.SIGKILL)
    began = graph.move(angle=0.3)
    # DDS believes for a while that it is still there.
    assert "Nav2 has not answered" in graph.status(began, MotionStatus.REFUSED, timeout_s=2).reason


def test_without_a_server_the_command_is_refused_with_the_reason_and_nothing_hangs(graph):
    arguments = [*ros_args({"odom": "/odom"}, motion_backend="nav2"), "-r", "__ns:=/alone"]
    graph.start("alone", NODE, *arguments, PYTHONPATH=graph.overlay).wait_for("ready")
    graph.probe.listen(MotionStatus, "alone/motion_status")
    began = time.monotonic()
    session = graph.session + 1  # its own: the other node's is not known in this namespace

    def refused():
        life = Supervision(session=session, camera_age_s=-1.0, verifier_age_s=-1.0)
        graph.probe.say("alone/supervision", graph.probe.introduce(life))
        graph.move(angle=0.3, topic="alone/motion_command", session=session)
        time.sleep(0.1)
        heard = graph.probe.heard("alone/motion_status", began)
        return [h.message.reason for h in heard if h.message.state == MotionStatus.REFUSED]

    wait_until(lambda: any("action server spin is not there" in r for r in refused()), 5, "a refusal")


def test_without_nav2_msgs_one_line_says_what_is_missing_and_how_to_get_it(graph):
    node = graph.start("no_nav2", NODE, *ros_args(motion_backend="nav2"))
    assert node.popen.wait(20) == 1
    lines = [line for line in node.text.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and "Traceback" not in node.text
    assert "nav2_msgs" in lines[0] and "apt-get install ros-$ROS_DISTRO-nav2-msgs" in lines[0]

"""motion_node as a real process: what ends a motion, and how fast (broken odometry: tests/system/test_drill.py)."""

from __future__ import annotations

import signal
import time

import pytest
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Twist, TwistStamped
from rosgraph_msgs.msg import Clock
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from specnav.supervise.surroundings import segments_of
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, children_of, left_in_memory, ros_args, wait_until

pytestmark = pytest.mark.graph
NODE = "spec_vlm_nav.ros.nodes.motion_node"
NOHUP = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def is_zero(heard):
    twist = heard.message
    return twist.linear.x == 0 and twist.angular.z == 0


class MoverGraph(Graph):
    """motion_node on an ideal base, started again where a test has ended it."""

    def begin(self):
        self.base, self.node, self.session, self.number = FakeBase(self), None, 0, 0
        self.probe.listen(Twist, "cmd_vel")
        self.probe.listen(MotionStatus, "motion_status")
        return self

    def start_node(self):
        began = time.monotonic()
        self.node = self.start("motion_node", NODE, *ros_args(odom_timeout_s=0.3, supervisor_timeout_s=0.0))
        self.node.wait_for("ready")
        wait_until(lambda: self.probe.heard("motion_status", began) != [], 10, "motion_status")
        wait_until(lambda: self.probe.node.count_subscribers("motion_command") == 1, 10, "its subscription")
        # The node must have heard odometry before it accepts anything.
        time.sleep(0.5)

    def command(self, distance=0.9, same=False, kind=MotionCommand.MOVE):
        """The next command, of the next instruction or of the one before."""
        self.number += 1
        self.instruction = self.instruction if same else self.number
        message = MotionCommand(
            kind=kind, session=self.session, instruction=self.instruction, sequence=self.number,
            distance_m=distance, text="on",
        )  # fmt: skip
        message.deadline.sec = 6
        return self.probe.order("motion_command", message)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with MoverGraph(tmp_path_factory.mktemp("motion")) as graph:
        yield graph.begin()
        graph.base.close()


@pytest.fixture
def graph(running):
    if running.node is None or not running.node.is_up:
        running.start_node()
    running.session += 1  # one that another sender has taken over from is not heard again
    yield running
    if running.node.is_up:
        running.command(kind=MotionCommand.STOP)
        wait_until(lambda: running.probe.last("motion_status").message.standing, 5, "standing")


def wait_for_status(graph, since, fits):
    wait_until(lambda: any(fits(h.message) for h in graph.probe.heard("motion_status", since)), 8, "a status")


def moving(graph):
    graph.command()
    wait_until(lambda: graph.probe.heard("cmd_vel")[-1].message.linear.x > 0.3, 5, "motion")


def first_zero_after(graph, since, timeout_s=5.0):
    """Seconds from `since` to the first of the zeros that nothing but zeros follow."""
    wait_until(lambda: is_zero(graph.probe.heard("cmd_vel")[-1]), timeout_s, "zero")
    time.sleep(0.3)
    heard = graph.probe.heard("cmd_vel", since)
    assert is_zero(heard[-1])
    last_motion = max((i for i, h in enumerate(heard) if not is_zero(h)), default=-1)
    return heard[last_motion + 1].at - since


def test_cmd_vel_comes_at_20_hz_or_more_and_a_motion_ends_where_it_should(graph):
    began, start = time.monotonic(), graph.base.x
    graph.command(distance=0.5)
    wait_for_status(graph, began, lambda status: status.state == MotionStatus.REACHED)
    assert graph.base.x - start == pytest.approx(0.5, abs=0.04)
    heard = graph.probe.heard("cmd_vel", began)
    assert len(heard) / (heard[-1].at - heard[0].at) >= 20
    assert max(h.message.linear.x for h in heard) <= 0.5


def test_the_deciding_process_killed_while_moving_means_zero_by_the_deadline(graph):
    sender = graph.start("sender", "tests.graph.command_sender", "0.9")
    sender.wait_for("sent")
    sent = time.monotonic()
    wait_until(lambda: graph.probe.heard("cmd_vel")[-1].message.linear.x > 0.2, 5, "motion")
    sender.kill(signal.SIGKILL)
    assert first_zero_after(graph, sent) < 0.9 + 0.15
    states = [h.message.state for h in graph.probe.heard("motion_status", sent)]
    assert MotionStatus.EXPIRED in states


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        pytest.param(signal.SIGHUP, marks=pytest.mark.skipif(NOHUP, reason="nohup: a closed terminal is ignored")),
    ],
)
def test_a_signal_while_moving_means_a_burst_of_zeros_exit_0_and_nothing_left(graph, number):
    moving(graph)
    node = graph.node
    segments = segments_of([node.popen.pid])
    began = time.monotonic()
    assert node.end(number) == 0
    heard = graph.probe.heard("cmd_vel", began)
    zeros = [h for h in heard if is_zero(h)]
    assert len(zeros) >= 4 and is_zero(heard[-1])
    assert zeros[0].at - began < 0.3
    assert "Traceback" not in node.text
    assert list(children_of(node.popen.pid)) == []
    # Who was killed in another test could not clear up.
    assert not left_in_memory(segments - set().union(*(process.left for process in graph.processes)))


def test_commands_that_are_no_sane_numbers_are_refused_and_move_nothing(graph):
    began, start = time.monotonic(), graph.base.x
    for distance in (float("nan"), float("inf"), 100.0):
        said = graph.command(distance)
        wait_for_status(graph, said, lambda status: status.state == MotionStatus.REFUSED)
    time.sleep(0.2)
    assert all(is_zero(h) for h in graph.probe.heard("cmd_vel", began)) and graph.base.x == start


def test_stop_means_zero_at_once_and_latches_against_the_next_command(graph):
    moving(graph)
    said = graph.command(same=True, kind=MotionCommand.STOP)
    assert first_zero_after(graph, said) < 0.1
    said = graph.command(same=True)
    wait_for_status(graph, said, lambda status: "latched" in status.reason)
    assert all(is_zero(h) for h in graph.probe.heard("cmd_vel", said))


def test_twist_stamped_is_published_when_asked_for(running):
    running.probe.listen(TwistStamped, "stamped/cmd_vel")
    stamped = running.start("stamped", NODE, *ros_args(enable_stamped_cmd_vel=True), "-r", "__ns:=/stamped")
    wait_until(lambda: running.probe.heard("stamped/cmd_vel") != [], 15, "TwistStamped")
    stamped.kill()
    header = running.probe.heard("stamped/cmd_vel")[-1].message.header
    assert header.frame_id == "base_link" and header.stamp.sec > 0


def test_a_time_that_no_clock_can_have_ends_no_node(running):
    running.probe.listen(MotionStatus, "timed/motion_status")
    timed = running.start("timed", NODE, *ros_args(use_sim_time=True), "-r", "__ns:=/timed")
    clock = running.probe.node.create_publisher(Clock, "/clock", 1)

    def is_told(sec):
        clock.publish(Clock(clock=Time(sec=sec)))
        heard = running.probe.heard("timed/motion_status")
        return heard != [] and heard[-1].message.header.stamp.sec == abs(sec)

    wait_until(lambda: is_told(5), 15, "the first time")
    for _ in range(20):
        assert not is_told(-7)
        time.sleep(0.01)
    wait_until(lambda: is_told(9), 5, "the next time", lambda: timed.text)
    timed.kill()


def test_a_wrong_parameter_is_refused_in_one_line_with_the_allowed_range(running):
    refused = [
        (running.start("motion_node", NODE, *ros_args(**parameters)), said)
        for parameters, said in (
            ({"rate_hz": "fast"}, "parameter rate_hz = fast refused: allowed is float, 20 to 200"),
            ({"rate_hz": 5.0}, "parameter rate_hz = 5.0 refused: allowed is float, 20 to 200"),
            ({"max_linear": -1.0}, "parameter max_linear = -1.0 refused: allowed is float, 0.05 to 1.5"),
            (
                {"odom_reliability": "maybe"},
                "odom_reliability = 'maybe' refused: allowed is one of best_effort, reliable",
            ),
        )
    ]
    refused += [
        (running.start("motion_node", NODE, *given), said)
        for given, said in (
            (("max_linear:=0.2",), "error: argument max_linear:=0.2 refused: nodes take parameters as --ros-args -p"),
            (("--ros-args", "--max-linear", "0.2"), "error: unknown arguments behind --ros-args: ['--max-linear'"),
            (("--ros-args", "-r", "__ns:=" + "/a" * 300), "error: error creating node: invalid node namespace"),
            (ros_args(use_sim_time="maybe"), "error: Trying to set parameter 'use_sim_time' to 'maybe'"),
        )
    ]
    for node, said in refused:
        assert node.popen.wait(60) == 1
        assert said in node.text and "Traceback" not in node.text

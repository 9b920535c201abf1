"""motion_node as a real process: what ends a motion, and how fast (broken odometry: tests/system/test_drill.py)."""

from __future__ import annotations

import os
import signal
import time

import pytest
from geometry_msgs.msg import Twist, TwistStamped
from spec_vlm_nav_interfaces.msg import MotionCommand, MotionStatus

from specnav.supervise.surroundings import segments_of
from tests.graph.bases import FakeBase
from tests.graph.harness import Graph, children_of, ros_args, wait_until

pytestmark = pytest.mark.graph
NODE = "spec_vlm_nav.ros.nodes.motion_node"
NOHUP = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def is_zero(heard):
    twist = heard.message
    return twist.linear.x == 0 and twist.angular.z == 0


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        yield running


@pytest.fixture
def base(graph):
    fake = FakeBase(graph)
    yield fake
    fake.close()


@pytest.fixture
def node(graph, base):
    graph.probe.listen(Twist, "cmd_vel")
    graph.probe.listen(MotionStatus, "motion_status")
    process = graph.start("motion_node", NODE, *ros_args(odom_timeout_s=0.3, supervisor_timeout_s=0.0))
    process.wait_for("ready")
    wait_until(lambda: graph.probe.heard("cmd_vel") != [], 10, "cmd_vel")
    # The node must have heard odometry before it accepts anything.
    time.sleep(0.5)
    return process


def command(sequence=1, distance=0.9, deadline_s=6.0, **more):
    message = MotionCommand(
        kind=MotionCommand.MOVE,
        session=1,
        instruction=1,
        sequence=sequence,
        distance_m=distance,
        text="on",
        **more,
    )
    message.deadline.sec, message.deadline.nanosec = int(deadline_s), int(deadline_s % 1 * 1e9)
    return message


def wait_for_status(graph, since, fits):
    wait_until(lambda: any(fits(h.message) for h in graph.probe.heard("motion_status", since)), 8, "a status")


def moving(graph):
    graph.probe.order("motion_command", command())
    wait_until(lambda: graph.probe.heard("cmd_vel")[-1].message.linear.x > 0.3, 5, "motion")


def first_zero_after(graph, since, timeout_s=5.0):
    """Seconds from `since` to the first of the zeros that nothing but zeros follow."""
    wait_until(lambda: is_zero(graph.probe.heard("cmd_vel")[-1]), timeout_s, "zero")
    time.sleep(0.3)
    heard = graph.probe.heard("cmd_vel", since)
    assert is_zero(heard[-1])
    last_motion = max((i for i, h in enumerate(heard) if not is_zero(h)), default=-1)
    return heard[last_motion + 1].at - since


def test_cmd_vel_comes_at_20_hz_or_more_and_a_motion_ends_where_it_should(graph, base, node):
    graph.probe.order("motion_command", command(distance=0.5))
    began = time.monotonic()
    wait_for_status(graph, began, lambda status: status.state == MotionStatus.REACHED)
    assert base.x == pytest.approx(0.5, abs=0.04)
    heard = graph.probe.heard("cmd_vel", began)
    assert len(heard) / (heard[-1].at - heard[0].at) >= 20
    assert max(h.message.linear.x for h in heard) <= 0.5


def test_the_deciding_process_killed_while_moving_means_zero_by_the_deadline(graph, node):
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
        pytest.param(signal.SIGHUP, marks=pytest.mark.skipif(NOHUP, reason="nohup: a closed terminal is ignored")),
    ],
)
def test_a_signal_while_moving_means_a_burst_of_zeros_exit_0_and_nothing_left(graph, node, number):
    moving(graph)
    segments = graph.segments_of(node)
    began = time.monotonic()
    assert node.end(number) == 0
    heard = graph.probe.heard("cmd_vel", began)
    zeros = [h for h in heard if is_zero(h)]
    assert len(zeros) >= 4 and is_zero(heard[-1])
    assert zeros[0].at - began < 0.3
    assert "Traceback" not in node.text
    assert list(children_of(node.popen.pid)) == []
    # What it shared with the probe is still the probe's.
    assert {s for s in segments if s.exists()} <= segments_of([os.getpid()])


def test_commands_that_are_no_sane_numbers_are_refused_and_move_nothing(graph, base, node):
    began = time.monotonic()
    for sequence, distance in enumerate((float("nan"), float("inf"), 100.0), 1):
        said = graph.probe.order("motion_command", command(sequence, distance))
        wait_for_status(graph, said, lambda status: status.state == MotionStatus.REFUSED)
    time.sleep(0.2)
    assert all(is_zero(h) for h in graph.probe.heard("cmd_vel", began)) and base.x == 0


def test_stop_means_zero_at_once_and_latches_against_the_next_command(graph, node):
    moving(graph)
    stop = MotionCommand(kind=MotionCommand.STOP, session=1, instruction=1, sequence=2)
    said = graph.probe.order("motion_command", stop)
    assert first_zero_after(graph, said) < 0.1
    said = graph.probe.order("motion_command", command(sequence=3))
    wait_for_status(graph, said, lambda status: "latched" in status.reason)
    assert all(is_zero(h) for h in graph.probe.heard("cmd_vel", said))


def test_twist_stamped_is_published_when_asked_for(graph):
    graph.probe.listen(TwistStamped, "cmd_vel")
    graph.start("motion_node", NODE, *ros_args(enable_stamped_cmd_vel=True))
    wait_until(lambda: graph.probe.heard("cmd_vel") != [], 15, "TwistStamped")
    header = graph.probe.heard("cmd_vel")[-1].message.header
    assert header.frame_id == "base_link" and header.stamp.sec > 0


def test_a_wrong_parameter_is_refused_in_one_line_with_the_allowed_range(graph):
    refused = [
        (graph.start("motion_node", NODE, *ros_args(**parameters)), said)
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
        (graph.start("motion_node", NODE, *given), said)
        for given, said in (
            (("max_linear:=0.2",), "error: argument max_linear:=0.2 refused: nodes take parameters as --ros-args -p"),
            (("--ros-args", "--max-linear", "0.2"), "error: unknown arguments behind --ros-args: ['--max-linear'"),
            (ros_args(use_sim_time="maybe"), "error: Trying to set parameter 'use_sim_time' to 'maybe'"),
        )
    ]
    for node, said in refused:
        assert node.popen.wait(60) == 1
        assert said in node.text and "Traceback" not in node.text

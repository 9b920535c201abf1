"""The whole graph, real processes: what every fault does to the robot."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest
import zmq
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand, MotionStatus

from tests.graph.harness import wait_until
from tests.graph.stack import METRICS, speed

pytestmark = pytest.mark.graph
INSTRUCTION = "find the red chair"


def test_verifier_killed_in_mid_answer_robot_stands_says_why_once_and_goes_on_when_it_is_back(stack):
    stack.wait_until_moving(stack.instruct(INSTRUCTION))  # the link is up
    stack.make_ready()
    stack.freeze(stack.verifier)
    began = stack.instruct(INSTRUCTION)
    time.sleep(0.6)  # the answer is open: asked for, not given
    logged = len(stack.decider.text)
    killed = stack.verifier.kill(signal.SIGKILL)
    wait_until(
        lambda: any(
            h.message.error_code == DecisionMetrics.LINK_LOST for h in stack.probe.heard(METRICS, killed)
        ),
        2.0,
        "LINK_LOST",
        lambda: stack.decider.text,
    )
    time.sleep(5.0)
    assert stack.last_motion(killed) < 0.5 and stack.decisions(began) == []
    warnings = [
        line for line in stack.decider.text[logged:].splitlines() if "[WARN]" in line or "[ERROR]" in line
    ]
    assert len(warnings) == 1 and "the robot stands still until it is back" in warnings[0]
    stack.verifier = stack.start_verifier()
    stack.verifier.wait_for("ready", 60)
    stack.wait_until_moving(time.monotonic(), 15.0)
    assert "the verifier answers again" in stack.decider.text[logged:]


def test_verifier_that_falls_silent_is_noticed_without_a_closed_connection(stack):
    stack.freeze(stack.verifier)
    began = stack.instruct(INSTRUCTION)
    wait_until(
        lambda: any(
            h.message.error_code == DecisionMetrics.LINK_LOST for h in stack.probe.heard(METRICS, began)
        ),
        5.0,
        "LINK_LOST",
    )
    assert stack.last_motion(began) == 0
    stack.verifier.popen.send_signal(signal.SIGCONT)
    stack.wait_until_moving(time.monotonic(), 15.0)


def test_stop_is_heard_while_the_model_thinks(stack):
    stack.freeze(stack.verifier)
    stack.instruct(INSTRUCTION)
    time.sleep(0.5)
    said = stack.instruct("stop")
    wait_until(lambda: stack.commands(said, MotionCommand.STOP) != [], 0.3, "STOP")
    stack.verifier.popen.send_signal(signal.SIGCONT)
    time.sleep(2.0)
    assert stack.last_motion(said) == 0 and stack.decisions(said) == []


def test_stop_while_moving_is_zero_at_once(stack):
    began = stack.instruct(INSTRUCTION)
    stack.wait_until_moving(began)
    said = stack.instruct("stop")
    time.sleep(1.5)
    assert stack.last_motion(said) < 0.15


def test_vlm_nav_node_killed_while_moving_means_zero_by_the_deadline(stack):
    began = stack.instruct(INSTRUCTION)
    stack.wait_until_moving(began)
    sent = stack.commands(began, MotionCommand.MOVE)[-1]
    deadline = sent.message.deadline.sec + sent.message.deadline.nanosec * 1e-9
    stack.decider.kill(signal.SIGKILL)
    time.sleep(deadline + 0.5)
    assert stack.last_motion(sent.at) < deadline + 0.1
    heard = stack.probe.heard("cmd_vel")[-5:]
    assert all(speed(h) == 0 for h in heard) and time.monotonic() - heard[-1].at < 0.2


def test_camera_stopped_while_moving_means_stop_in_time_and_goes_on_when_it_is_back(stack):
    began = stack.instruct(INSTRUCTION)
    stack.wait_until_moving(began)
    stack.set_simulator(camera_fault="stopped")
    silent = time.monotonic()
    try:
        time.sleep(4.0)
        assert stack.last_motion(silent) < 1.0 + 0.2
        codes = [h.message.error_code for h in stack.probe.heard(METRICS, silent)]
        assert codes.count(DecisionMetrics.STALE_CAMERA) == 1
    finally:
        stack.set_simulator(camera_fault="none")
    stack.wait_until_moving(time.monotonic())


def test_odometry_stopped_while_moving_means_stop_in_time(stack):
    began = stack.instruct(INSTRUCTION)
    stack.wait_until_moving(began)
    stack.set_simulator(odom_fault="stopped")
    silent = time.monotonic()
    try:
        time.sleep(1.5)
        assert stack.last_motion(silent) < 0.5 + 0.2
        states = [h.message.state for h in stack.probe.heard("motion_status", silent)]
        assert MotionStatus.STALE_ODOM in states
    finally:
        stack.set_simulator(odom_fault="none")


def test_garbage_on_the_verifiers_port_is_ignored_with_a_warning(stack):
    host, port = "127.0.0.1", int(stack.address.rsplit(":", 1)[1])
    context = zmq.Context()
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.LINGER, 0)
    stranger.connect(stack.address)
    for data in (b"", b"\x00" * 1000, os.urandom(5000), b"{}", b"\xff" * 70):
        stranger.send(data)
        stranger.send_multipart([b"a", data, b"b"])
    with socket.create_connection((host, port)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(2000))
    try:
        began = stack.instruct(INSTRUCTION)
        stack.wait_until_moving(began)
    finally:
        stranger.close()
        context.term()
    assert stack.verifier.popen.poll() is None
    assert '"level": "warning"' in stack.verifier.text
    assert stack.decisions(began)

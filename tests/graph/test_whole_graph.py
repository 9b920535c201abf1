"""The whole graph, real processes: what is said of a lost verifier, and strangers on its port (faults: test_drill)."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import time

import pytest
import zmq
from spec_vlm_nav_interfaces.msg import DecisionMetrics
from std_msgs.msg import String

from tests.graph.harness import wait_until
from tests.graph.stack import CMD_VEL, METRICS, last_motion

pytestmark = pytest.mark.graph
INSTRUCTION = "find the red chair"


def test_verifier_killed_in_mid_answer_robot_stands_says_why_once_and_goes_on_when_it_is_back(stack):
    stack.wait_until_moving(stack.instruct(INSTRUCTION))  # the link is up
    stack.make_ready()
    stack.verifier.kill(signal.SIGSTOP)
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
    time.sleep(3.0)
    assert last_motion(stack, killed) < 0.5 and stack.decisions(began) == []
    warnings = [
        line for line in stack.decider.text[logged:].splitlines() if "[WARN]" in line or "[ERROR]" in line
    ]
    assert len(warnings) == 1 and "the robot stands still until it is back" in warnings[0]
    stack.verifier = stack.start_verifier()
    stack.verifier.wait_for("ready", 60)
    stack.wait_until_moving(time.monotonic(), 15.0)
    assert "the verifier answers again" in stack.decider.text[logged:]


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
    wait_until(lambda: stack.decisions(began), 5, "a decision")  # told when the whole answer is there


def test_a_wall_that_the_camera_does_not_show_is_not_pushed_against_for_ever(stack):
    """The model alone may insist on going on: what went over cmd_vel until the instruction ended."""
    outcome = "vlm_nav_node/outcome"
    stack.probe.listen(String, outcome)
    stack.probe.set_parameters("vlm_nav_node", exploration="none")
    stack.reset("heldout", ahead=True)  # it goes on: without the goal in sight it might turn for minutes
    stack.set_simulator(base_fault="stuck")
    began = stack.instruct(stack.instruction)
    try:
        wait_until(
            lambda: stack.probe.heard(outcome, began) != [], 120, "the end", lambda: stack.decider.text
        )
    finally:
        stack.set_simulator(base_fault="none")
        stack.probe.set_parameters("vlm_nav_node", exploration="auto")
    said = json.loads(stack.probe.heard(outcome, began)[0].message.data)
    heard = stack.probe.heard(CMD_VEL, began)
    ways = [one.message.linear.x * min(other.at - one.at, 1.0) for one, other in itertools.pairwise(heard)]
    goes = [False, *(h.message.linear.x > 0.002 for h in heard)]
    assert said["code"] in ("BLOCKED", "NO_RESPONSE", "COLLISION_AHEAD", "TOO_MANY_DECISIONS") and said["message"]
    assert sum(now and not before for before, now in itertools.pairwise(goes)) <= 5
    assert sum(max(way, 0.0) for way in ways) <= 1.2 and min(ways) >= 0.0

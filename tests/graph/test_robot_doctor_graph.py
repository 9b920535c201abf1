"""`specnav doctor --robot` on a graph: sound except for what is not there, and then with planted faults, each named."""

from __future__ import annotations

import json

import pytest
from geometry_msgs.msg import Twist
from std_msgs.msg import Bool, String

from specnav.supervise.robot_stack import free_port
from tests.graph.harness import Graph, ros_args, wait_until

pytestmark = pytest.mark.graph
END_S = 40.0
CAMERA = "camera/image_raw/compressed"


@pytest.fixture
def graph(tmp_path):
    with Graph(tmp_path) as running:
        yield running


def doctor(graph, name, *arguments):
    return graph.start(name, "specnav.cli", "doctor", "--robot", "--seconds", "1.5", *arguments)


def published_by_the_doctor(node):
    try:
        return {topic for topic, _ in node.get_publisher_names_and_types_by_node("specnav_doctor", "/")}
    except RuntimeError:
        return set()  # it is not up yet


def test_what_is_missing_and_each_planted_fault_is_named_on_a_line_of_its_own(graph):
    probe = graph.probe
    small = {"width": 32, "height": 32, "camera_rate": 5.0, "odom_noise_m": 0.0002}
    simulator = graph.start("navsim", "navsim.ros_node", *ros_args(**small))
    mover = graph.start(
        "motion_node",
        "spec_vlm_nav.ros.nodes.motion_node",
        *ros_args(base_frame="trunk", supervisor_timeout_s=0.0),
    )
    simulator.wait_for("ready")
    mover.wait_for("ready")

    first = doctor(graph, "doctor")
    published = set()

    def is_over():
        published.update(published_by_the_doctor(probe.node))
        return not first.is_up

    wait_until(is_over, END_S, "the doctor", lambda: first.text)
    assert first.popen.returncode == 1, first.text
    lines = [line.split(maxsplit=2) for line in first.text.splitlines()]
    failed = {words[1] for words in lines if words[0] == "FAIL"}
    # vlm_nav_node is not there, and motion_node wants other frames: with its rows on /diagnostics, that is all.
    assert {"vlm_nav_node", "odom"} <= failed <= {"vlm_nav_node", "odom", "diagnostics", "image"}, first.text
    assert (
        "FAIL  odom frames" in first.text
        and "odom -> base_link; motion_node expects any -> trunk" in first.text
    )
    assert "/odom: " in first.text and " Hz from /navsim" in first.text
    assert "/cmd_vel is received by /navsim" in first.text and "only /motion_node sends" in first.text
    assert published <= {"/parameter_events"}  # nothing that could move a robot

    probe.say("e_stop", Bool(data=True))
    probe.open(String, "stop")
    probe.open(type_of("MotionCommand"), "motion_command", reliable=False)
    probe.open(Twist, "cmd_vel")
    fast = Twist()
    fast.angular.z = 0.3
    probe.node.create_timer(0.05, lambda: probe.say("cmd_vel", fast))
    address = f"tcp://127.0.0.1:{free_port()}"
    second = doctor(graph, "again", "--json", "--image", "camera/nowhere", "--verifier", address)
    wait_until(lambda: not second.is_up, END_S, "the doctor", lambda: second.text)
    assert second.popen.returncode == 1, second.text
    found = {(row["verdict"], row["check"]): row for row in json.loads(second.text)}
    for check, said in (
        ("image", "no node publishes /camera/nowhere"),
        ("types", "/stop: /probe (std_msgs/msg/String)"),
        ("QoS", "/motion_command from /probe never reaches /motion_node: it is published best effort"),
        ("velocities", "/cmd_vel: /probe is driving the robot, up to 0.30"),
        ("e-stop", "is latched"),
        ("verifier", f"no verifier answers at {address}"),
    ):
        assert said in found["FAIL", check]["found"] and found["FAIL", check]["remedy"], second.text
    assert f"/{CAMERA}" in found["FAIL", "image"]["remedy"]


def type_of(name):
    from spec_vlm_nav_interfaces import msg

    return getattr(msg, name)

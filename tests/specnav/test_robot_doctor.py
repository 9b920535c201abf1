"""`specnav doctor --robot` without ROS: sound facts give no complaint, and each planted fault gives its own line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spec_vlm_nav.motion.command import OPERATOR_STOP, SILENT
from specnav.doctor.robot.checks import Verdict, examine
from specnav.doctor.robot.facts import (
    Diagnostic,
    Disk,
    Endpoint,
    Facts,
    Middleware,
    MotionFacts,
    OurNode,
    TopicFacts,
    TopicTraffic,
    VerifierFacts,
)
from specnav.doctor.robot.roles import (
    COMMAND,
    COMPRESSED,
    DIAGNOSTICS,
    EMPTY,
    ODOMETRY,
    RAW,
    STAMPED,
    STATUS,
    STRING,
    SUPERVISION,
    TWIST,
)

DECIDER, MOVER, BASE, CAMERA = "/vlm_nav_node", "/motion_node", "/driver", "/camera"


def end(node, kind, reliable=True, lasting=False):
    return Endpoint(node, kind, reliable, lasting)


def heard(rate_hz=10.0, **changes):
    given = {"count": int(4 * rate_hz), "rate_hz": rate_hz, "longest_gap_s": 1.5 / rate_hz} | changes
    return TopicTraffic(**given)


def topic(role, kind, publishers=(), subscribers=(), hears=None, others=()):
    ends = [
        tuple(one if isinstance(one, Endpoint) else end(one, kind) for one in these)
        for these in (publishers, subscribers)
    ]
    name = {"diagnostics": "/diagnostics"}.get(role, f"/{role}")
    return TopicFacts(role, name, (kind,), *ends, hears, others)


SOUND_TOPICS = (
    topic(
        "image",
        COMPRESSED,
        [end(CAMERA, COMPRESSED, False)],
        [end(DECIDER, COMPRESSED, False)],
        heard(frames=(("front", ""),), offset_s=-0.08),
    ),
    topic(
        "odom",
        ODOMETRY,
        [BASE],
        [end(MOVER, ODOMETRY, False)],
        heard(30.0, frames=(("odom", "base_link"),), offset_s=-0.01),
    ),
    topic("cmd_vel", TWIST, [MOVER], [BASE], TopicTraffic()),
    topic(
        "instruction", STRING, [], [DECIDER, end(DECIDER, STRING, False), MOVER, end(MOVER, STRING, False)]
    ),
    topic("stop", EMPTY, [], [MOVER, end(MOVER, EMPTY, False)]),
    topic(
        "e_stop",
        "std_msgs/msg/Bool",
        [end("/button", "std_msgs/msg/Bool", False)],
        [end(MOVER, "std_msgs/msg/Bool"), end(MOVER, "std_msgs/msg/Bool", False)],
    ),
    topic("e_stop_reset", EMPTY),
    topic("motion_command", COMMAND, [DECIDER], [MOVER]),
    topic("motion_status", STATUS, [MOVER], [DECIDER], heard(2.0, longest_gap_s=0.51)),
    topic("supervision", SUPERVISION, [DECIDER], [MOVER], heard()),
    topic("diagnostics", DIAGNOSTICS, [MOVER, DECIDER], [], heard(2.0)),
)


def sound():
    return Facts(
        middleware=Middleware("rmw_fastrtps_cpp", 7, "jazzy"),
        nodes={
            "motion_node": OurNode(MOVER, 1, {"odom_frame": "odom", "base_frame": ""}),
            "vlm_nav_node": OurNode(DECIDER, 1, {"verifier": "tcp://x:5555"}),
            "blackbox_node": OurNode("/blackbox_node", 1, {}),
        },
        other_nodes=(BASE, CAMERA),
        topics={one.role: one for one in SOUND_TOPICS},
        motion=MotionFacts("IDLE"),
        diagnostics=(
            Diagnostic("motion_node: odometry", 0, "sound"),
            Diagnostic("motion_node: camera", 3, "no command yet"),
        ),
        verifier=VerifierFacts("tcp://x:5555", "", "target", 12.0, 14.0),
        disk=Disk("/home", 20_000.0),
    )


def with_topic(role, **changes):
    facts = sound()
    return replace(facts, topics={**facts.topics, role: replace(facts.topics[role], **changes)})


def with_node(name, **changes):
    facts = sound()
    return replace(facts, nodes={**facts.nodes, name: replace(facts.nodes[name], **changes)})


def without_node(name, **changes):
    facts = sound()
    return replace(facts, nodes={key: node for key, node in facts.nodes.items() if key != name}, **changes)


def complaints(facts):
    return [line for line in examine(facts) if line.verdict is not Verdict.OK]


def test_a_sound_graph_gives_no_complaint():
    assert complaints(sound()) == []
    assert {line.check for line in examine(sound())} >= {
        "motion_node",
        "image",
        "QoS",
        "e-stop",
        "verifier",
        "disk",
    }


STRANGER = end("/teleop", TWIST)
MOVER_AND_STRANGER = (end(MOVER, TWIST), STRANGER)
PLANTED = [
    # graph
    (
        replace(sound(), has_interfaces=False),
        "FAIL",
        "middleware",
        "spec_vlm_nav_interfaces is not installed",
    ),
    (without_node("vlm_nav_node"), "FAIL", "vlm_nav_node", "is not running"),
    (with_node("motion_node", count=2), "FAIL", "motion_node", "2 nodes are called /motion_node"),
    (with_node("motion_node", values=None), "FAIL", "motion_node", "does not respond"),
    (with_node("motion_node", values={"dry_run": True}), "warn", "motion_node", "dry_run"),
    (
        with_node("motion_node", values={"use_sim_time": True}),
        "FAIL",
        "time",
        "true for motion_node and false for",
    ),
    (replace(sound(), clocks=("/bag",)), "warn", "time", "/bag publishes /clock"),
    # sensors
    (
        with_topic("image", publishers=(), others=("/front/compressed",)),
        "FAIL",
        "image",
        "no node publishes /image",
    ),
    (with_topic("image", publishers=(end(CAMERA, RAW),)), "FAIL", "image", "is sensor_msgs/msg/Image"),
    (with_topic("image", heard=TopicTraffic()), "FAIL", "image", "nothing arrived"),
    (with_topic("image", heard=heard(1.5, longest_gap_s=0.7)), "warn", "image", "1.5 Hz"),
    (with_topic("image", heard=heard(5.0, longest_gap_s=1.4)), "warn", "image", "longest gap 1.40 s"),
    (with_topic("odom", heard=heard(1.0, longest_gap_s=1.0)), "FAIL", "odom", "1.0 Hz"),
    (
        with_topic("odom", publishers=(end(BASE, ODOMETRY), end("/ekf", ODOMETRY))),
        "FAIL",
        "odom",
        "/driver, /ekf",
    ),
    (with_topic("motion_status", heard=TopicTraffic()), "FAIL", "motion_status", "motion_node sent nothing"),
    (with_topic("supervision", heard=heard(3.0)), "warn", "supervision", "3.0 Hz"),
    (with_topic("supervision", publishers=()), "FAIL", "supervision", "does not publish"),
    (
        with_topic("odom", heard=heard(30.0, frames=(("odom", "base"),), stuck=100)),
        "FAIL",
        "odom stamps",
        "do not advance",
    ),
    (with_topic("image", heard=heard(frames=(("f", ""),))), "warn", "image stamps", "are empty"),
    (
        with_topic("image", heard=heard(frames=(("f", ""),), offset_s=-3.0)),
        "warn",
        "image stamps",
        "3.00 s behind",
    ),
    (
        with_topic("odom", heard=heard(30.0, frames=(("map", "base"),), offset_s=0.0)),
        "FAIL",
        "odom frames",
        "expects odom -> any",
    ),
    (
        with_topic("odom", heard=heard(30.0, frames=(("odom", "a"), ("odom", "b")), offset_s=0.0)),
        "FAIL",
        "odom frames",
        "two sources",
    ),
    # topics
    (
        with_topic("e_stop", publishers=(end("/button", STRING),)),
        "FAIL",
        "types",
        "/e_stop: /button (std_msgs/msg/String)",
    ),
    (with_topic("cmd_vel", subscribers=(end(BASE, TWIST), end("/old", STAMPED))), "FAIL", "types", "/old"),
    (
        with_topic("odom", subscribers=(end(MOVER, ODOMETRY),), publishers=(end(BASE, ODOMETRY, False),)),
        "FAIL",
        "QoS",
        "requested reliable",
    ),
    (
        with_topic("motion_command", subscribers=(end(MOVER, COMMAND, lasting=True),)),
        "FAIL",
        "QoS",
        "transient local",
    ),
    (
        with_topic("cmd_vel", publishers=(end(MOVER, TWIST, False),)),
        "FAIL",
        "QoS",
        "/cmd_vel from /motion_node never reaches /driver",
    ),
    # moving
    (
        with_topic("cmd_vel", subscribers=(end("/rosbag2_recorder", TWIST),)),
        "FAIL",
        "base",
        "no node receives /cmd_vel",
    ),
    (with_node("motion_node", values={"motion_backend": "nav2"}), "FAIL", "base", "drive_on_heading"),
    (with_topic("cmd_vel", publishers=MOVER_AND_STRANGER), "warn", "velocities", "/teleop may also send"),
    (
        with_topic("cmd_vel", publishers=MOVER_AND_STRANGER, heard=heard(fastest=0.2)),
        "FAIL",
        "velocities",
        "/teleop is driving the robot",
    ),
    (
        with_topic("cmd_vel", publishers=MOVER_AND_STRANGER, heard=heard()),
        "FAIL",
        "velocities",
        "/teleop sends zeros",
    ),
    (
        replace(sound(), motion=MotionFacts("ESTOPPED", "topic e_stop", True, "topic e_stop")),
        "FAIL",
        "e-stop",
        "topic e_stop",
    ),
    (
        replace(sound(), motion=MotionFacts("NO_RESPONSE", "x", held_by="no response to 0.2 m")),
        "FAIL",
        "motion",
        "nothing moves",
    ),
    (replace(sound(), motion=MotionFacts("NOT_READY", "it lies")), "warn", "motion", "it lies"),
    # upkeep
    (
        replace(sound(), diagnostics=(Diagnostic("motion_node: odometry", 2, "silent"),)),
        "FAIL",
        "diagnostics",
        "silent",
    ),
    (
        replace(sound(), diagnostics=(Diagnostic("motion_node: gate", 1, "odd"),)),
        "warn",
        "diagnostics",
        "WARN motion_node: gate: odd",
    ),
    (
        replace(sound(), diagnostics=(Diagnostic("lidar: motor", 2, "hot"),)),
        "warn",
        "others' diagnostics",
        "ERROR lidar: motor: hot",
    ),
    (with_topic("diagnostics", heard=TopicTraffic()), "warn", "diagnostics", "nothing arrived"),
    (
        replace(sound(), verifier=VerifierFacts("tcp://x:1", "no verifier answers")),
        "FAIL",
        "verifier",
        "no verifier answers",
    ),
    (
        replace(sound(), verifier=VerifierFacts("tcp://x:1", "", "m", 400.0, 900.0)),
        "warn",
        "verifier",
        "400.0 ms",
    ),
    (replace(sound(), verifier=None), "warn", "verifier", "not checked"),
    (without_node("blackbox_node"), "warn", "black box", "is not running"),
    (replace(sound(), disk=Disk("/home", 300.0)), "warn", "disk", "0.3 GB free"),
]


@pytest.mark.parametrize(
    ("facts", "verdict", "check", "said"), PLANTED, ids=[f"{p[2]}: {p[3]}" for p in PLANTED]
)
def test_a_planted_fault_gives_its_own_line_and_what_to_do(facts, verdict, check, said):
    found = complaints(facts)
    mine = [line for line in found if line.check == check and said in line.found + line.remedy]
    assert len(mine) == 1, found
    assert mine[0].verdict.value == verdict and mine[0].remedy and "\n" not in mine[0].found
    # Nothing else is blamed, except for what follows from it.
    assert len(found) <= 2, found


def test_an_empty_graph_says_so_first_and_names_domain_and_discovery():
    facts = Facts(
        Middleware("rmw_fastrtps_cpp", 7, discovery="LOCALHOST"),
        topics={one.role: replace(one, publishers=(), subscribers=(), heard=None) for one in SOUND_TOPICS},
    )
    first = examine(facts)[0]
    assert first.verdict is Verdict.FAIL and "domain 7" in first.found
    assert "ROS_DOMAIN_ID" in first.remedy and "DISCOVERY_RANGE=SUBNET" in first.remedy


def test_a_node_in_another_namespace_is_told_with_the_flag_that_finds_it():
    facts = without_node("motion_node", elsewhere=("/robot1/motion_node",))
    line = next(one for one in complaints(facts) if one.check == "motion_node")
    assert "--namespace /robot1" in line.remedy


def test_what_a_node_hears_both_ways_reaches_it_although_one_of_its_ears_is_deaf():
    assert not [line for line in complaints(sound()) if line.check == "QoS"]  # the button is best effort


def test_a_stop_that_the_next_instruction_ends_is_no_fault():
    for held in ("STOP", OPERATOR_STOP, f"{SILENT} for 2.31 s"):
        assert complaints(replace(sound(), motion=MotionFacts("STOPPED", held_by=held))) == []


def test_a_remedy_names_the_node_in_its_namespace():
    facts, name = with_topic("supervision", publishers=()), "/robot1/vlm_nav_node"
    nodes = {**facts.nodes, "vlm_nav_node": replace(facts.nodes["vlm_nav_node"], name=name)}
    found = complaints(replace(facts, nodes=nodes))
    remedies = [line.remedy for line in found if line.check == "supervision"]
    assert remedies == [f"is it active? ros2 lifecycle get {name}"]


def test_velocities_while_motion_node_moves_the_robot_are_its_own():
    facts = replace(
        with_topic("cmd_vel", publishers=MOVER_AND_STRANGER, heard=heard(fastest=0.3)),
        motion=MotionFacts("MOVING", moved=True),
    )
    line = next(one for one in complaints(facts) if one.check == "velocities")
    assert line.verdict is Verdict.WARN

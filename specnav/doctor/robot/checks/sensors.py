# SPDX-License-Identifier: Apache-2.0
"""Checks of camera, odometry, obstacle sensor and heartbeats: present, frequent enough, and with sane stamps."""

from __future__ import annotations

from specnav.doctor.robot.checks.line import CheckLine, CheckLines, fail, ok, warn
from specnav.doctor.robot.facts import Facts, TopicFacts, TopicTraffic
from specnav.doctor.robot.roles import DECIDER, MOVER, RAW, said_name

OFFSET_S = 0.5  # larger differences between stamps and clock are reported; a slow camera has half of this
STUCK_SHARE = 0.5  # share of messages whose stamp does not advance
HZ = {"image": 2.0, "odom": 10.0}  # slower rates work, but are reported
SLOW_SUPERVISION_HZ, SLOW_STATUS_HZ = 5.0, 1.0  # nominal rates are 10 and 2 Hz


def check_sensors(facts: Facts) -> CheckLines:
    """Check the inputs from outside, and the heartbeats of our nodes."""
    lines = []
    camera_s = float(facts.value(DECIDER, "camera_timeout_s", 1.0))
    odom_s = float(facts.value(MOVER, "odom_timeout_s", 0.5))
    lines.append(_sensor(facts, "image", camera_s, "the camera driver", "--image"))
    lines.append(_sensor(facts, "odom", odom_s, "the robot's driver", "--odom"))
    if "ahead" in facts.topics:
        timeout = float(facts.value(MOVER, "collision_timeout_s", 0.5))
        lines.append(_sensor(facts, "ahead", timeout, "the obstacle sensor", ""))
    if "robot_state" in facts.topics:
        timeout = float(facts.value(MOVER, "robot_state_timeout_s", 1.0))
        lines.append(_sensor(facts, "robot_state", timeout, "go2_state_node", ""))
    if MOVER in facts.nodes:
        lines.append(_sign_of_life(facts, "motion_status", MOVER, SLOW_STATUS_HZ))
    if DECIDER in facts.nodes:
        lines.append(_sign_of_life(facts, "supervision", DECIDER, SLOW_SUPERVISION_HZ))
    return lines


def _sensor(facts: Facts, role: str, timeout_s: float, source: str, flag: str) -> CheckLine:
    topic = facts.topics[role]
    if not topic.publishers:
        there = f"topics of that type: {', '.join(topic.others)}" if topic.others else f"is {source} running?"
        option = f" ({flag} checks another topic; remap it for our nodes)" if flag else ""
        return fail(role, f"no node publishes {topic.name}", f"{there}{option}")
    if not topic.fitting:
        kinds = ", ".join(sorted({end.kind for end in topic.publishers}))
        return fail(
            role, f"{topic.name} is {kinds}; expected {' or '.join(topic.wanted)}", _other_type(topic)
        )
    heard = topic.heard or TopicTraffic()
    who = ", ".join(sorted({said_name(end.node) for end in topic.fitting}))
    if not heard.count:
        remedy = f"is {source} sending? See QoS below; "
        if RAW in {end.kind for end in topic.fitting}:
            remedy += "large raw images get lost with best effort: use the compressed topic"
        else:
            remedy += "between machines also check RMW, domain and firewall"
        return fail(
            role, f"{topic.name}: {who} publishes, but nothing arrived in {facts.seconds:g} s", remedy
        )
    found = f"{topic.name}: {heard.rate_hz:.1f} Hz from {who}, longest gap {heard.longest_gap_s:.2f} s"
    if len(topic.fitting) > 1:
        remedy = "keep only one of them: two sources contradict each other"
        return (fail if role == "odom" else warn)(role, found, remedy)
    if heard.longest_gap_s > timeout_s:
        say = fail if heard.rate_hz * timeout_s < 1 else warn
        return say(
            role, found, f"motions end after {timeout_s:g} s of silence: find the cause, or raise the timeout"
        )
    if heard.rate_hz < HZ.get(role, 0.0):
        return warn(role, found, f"at least {HZ[role]:g} Hz is better")
    return ok(role, found)


def _other_type(topic: TopicFacts) -> str:
    there = f"; topics of a fitting type: {', '.join(topic.others)}" if topic.others else ""
    if topic.role == "image":
        return f"use an image_transport raw or compressed topic of the camera{there}"
    return f"is this the right topic{there}?"


def _sign_of_life(facts: Facts, role: str, node: str, least_hz: float) -> CheckLine:
    topic = facts.topics[role]
    heard = topic.heard or TopicTraffic()
    if not topic.publishers and role == "supervision":
        return fail(
            role,
            f"{node} does not publish {topic.name}",
            f"is it active? ros2 lifecycle get {facts.nodes[node].name}",
        )
    if not heard.count:
        return fail(
            role, f"{node} sent nothing on {topic.name} in {facts.seconds:g} s", "it hangs: see its log"
        )
    found = f"{topic.name}: {heard.rate_hz:.1f} Hz, longest gap {heard.longest_gap_s:.2f} s"
    if heard.rate_hz < least_hz:
        return warn(role, found, "is the machine or the network overloaded?")
    return ok(role, found)


def check_stamps(facts: Facts) -> CheckLines:
    """Whether stamps advance and are close to the clock."""
    lines = []
    for role in ("image", "odom"):
        heard = facts.topics[role].heard
        if heard is None or not heard.count or not heard.frames:
            continue
        check = f"{role} stamps"
        if heard.stuck > STUCK_SHARE * heard.count:
            found = f"{heard.stuck} of {heard.count} do not advance: our nodes ignore these messages as old"
            lines.append(fail(check, found, "the driver repeats stamps: restart it"))
        elif heard.offset_s is None:
            lines.append(warn(check, "are empty", "the age of a frame is then counted from its receipt"))
        elif abs(heard.offset_s) > OFFSET_S:
            side = "ahead of" if heard.offset_s > 0 else "behind"
            found = f"are {abs(heard.offset_s):.2f} s {side} {'/clock' if facts.clocks else 'this clock'}"
            lines.append(warn(check, found, "synchronise the machines' clocks (chrony), or see use_sim_time"))
        else:
            lines.append(ok(check, f"advance, {heard.offset_s * 1e3:+.0f} ms from this machine's clock"))
    return lines


def check_frames(facts: Facts) -> CheckLines:
    """Whether odometry uses the frames that motion_node expects."""
    lines = []
    heard = facts.topics["odom"].heard
    if heard is not None and heard.frames:
        wanted = (
            str(facts.value(MOVER, "odom_frame", "")),
            str(facts.value(MOVER, "base_frame", "")),
        )
        said = ", ".join(f"{frame or '(none)'} -> {child or '(none)'}" for frame, child in heard.frames)
        wrong = [
            one
            for pair in heard.frames
            for one, want in zip(pair, wanted, strict=True)
            if want and one != want
        ]
        if len(heard.frames) > 1:
            lines.append(
                fail("odom frames", said, "several frames: two sources publish odometry on one topic")
            )
        elif wrong:
            expected = f"motion_node expects {wanted[0] or 'any'} -> {wanted[1] or 'any'}"
            lines.append(
                fail("odom frames", f"{said}; {expected}", "set odom_frame and base_frame of motion_node")
            )
        else:
            lines.append(ok("odom frames", said))
    camera = facts.topics["image"].heard
    if camera is not None and camera.frames:
        frames = ", ".join(frame or "(none)" for frame, _ in camera.frames)
        lines.append(ok("image frame", frames))
    return lines

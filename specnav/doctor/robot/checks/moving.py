# SPDX-License-Identifier: Apache-2.0
"""Checks of what may move the robot: who receives velocities, who else sends them, and what holds the robot."""

from __future__ import annotations

from spec_vlm_nav.motion.command import OPERATOR_STOP, SILENT
from specnav.doctor.robot.checks.line import CheckLines, fail, ok, warn
from specnav.doctor.robot.facts import Facts, TopicTraffic
from specnav.doctor.robot.roles import MOVER, OWN_NAME, REQUEST, said_name

CREEP = 0.0011  # m/s: the creep with which a stop may begin
UNDER_WAY = ("MOVING", "SETTLING")
FINE = ("IDLE", "MOVING", "REACHED", "STOPPED", "SETTLING")
UNTIL_NEXT = ("STOP", OPERATOR_STOP, SILENT)  # beginnings of holds that the next instruction ends
NAV2 = ("drive_on_heading", "spin")


def check_takers(facts: Facts) -> CheckLines:
    """Whether any node receives what motion_node sends."""
    topic = facts.topics["cmd_vel"]
    if facts.value(MOVER, "motion_backend", "twist") == "nav2":
        absent = [name for name in NAV2 if name not in facts.actions]
        if absent:
            return fail("base", f"no action server {', '.join(absent)}", "is Nav2's behavior_server active?")
        return ok("base", f"Nav2's action servers {', '.join(NAV2)}")
    takers = [end for end in topic.subscribers if end.kind in topic.wanted and not end.drives_nothing]
    names = sorted({said_name(end.node) for end in takers if end.node not in facts.our_names})
    if names:
        return ok("base", f"{topic.name} is received by {', '.join(names)}")
    there = f"topics of that type: {', '.join(topic.others)}" if topic.others else "is the driver running?"
    if REQUEST in topic.wanted:
        there = "is this the Go2's network (RMW_IMPLEMENTATION, CYCLONEDDS_URI), and is its sport service on?"
    return fail(
        "base",
        f"no node receives {topic.name}: nothing would move",
        f"{there} (--cmd-vel checks another topic)",
    )


def check_commands(facts: Facts) -> CheckLines:
    """Whether nodes other than motion_node send velocities."""
    topic = facts.topics["cmd_vel"]
    mover = facts.nodes[MOVER].name if MOVER in facts.nodes else ""
    strangers = [
        end for end in topic.publishers if end.node != mover and not end.node.endswith(f"/{OWN_NAME}")
    ]
    names = ", ".join(sorted({said_name(end.node) for end in strangers}))
    heard = topic.heard or TopicTraffic()
    at_rest = facts.motion is None or not facts.motion.moved
    if not strangers:
        return ok("velocities", f"{topic.name}: {f'only {mover}' if mover else 'no node'} sends")
    mux = "stop it, or put twist_mux between them"
    if heard.count and heard.fastest > CREEP and at_rest:
        found = f"{topic.name}: {names} is driving the robot, up to {heard.fastest:.2f} m/s or rad/s"
        return fail("velocities", found, f"motion_node is at rest: {mux}")
    if heard.count and at_rest:
        found = f"{topic.name}: {names} sends zeros at {heard.rate_hz:.0f} Hz"
        return fail("velocities", found, f"every motion of ours would be cut short: {mux}")
    return warn("velocities", f"{topic.name}: {names} may also send", mux)


def check_motion(facts: Facts) -> CheckLines:
    """The e-stop, and whether motion_node can move the robot."""
    motion = facts.motion
    if motion is None:
        return []
    reset = f"ros2 service call {facts.nodes[MOVER].name if MOVER in facts.nodes else '/motion_node'}/reset "
    reset += "std_srvs/srv/Trigger, when it is safe"
    because = f": {motion.reason}" if motion.reason else ""
    if motion.estopped:
        return fail("e-stop", f"is latched{because}", reset)
    lines = [ok("e-stop", "is not latched")]
    found = f"{motion.state}{because}"
    if motion.held_by and not motion.held_by.startswith(UNTIL_NEXT):
        lines.append(fail("motion", f"{found}; nothing moves: {motion.held_by}", reset))
    elif motion.state in FINE:
        waits = f"; {motion.held_by}: waiting for an instruction" if motion.held_by else ""
        lines.append(ok("motion", found + waits))
    else:
        lines.append(warn("motion", found, "the last motion ended this way; the reason tells why"))
    return lines

# SPDX-License-Identifier: Apache-2.0
"""Middleware, nodes, and the clock they live by."""

from __future__ import annotations

from specnav.doctor.robot.checks.line import CheckLine, CheckLines, fail, ok, warn
from specnav.doctor.robot.facts import Facts, OurNode
from specnav.doctor.robot.roles import BLACKBOX, DECIDER, MOVER, OPTIONAL

REQUIRED = {
    MOVER: "nothing can move: ros2 run spec_vlm_nav motion_node, or a launch file",
    DECIDER: "no node decides: ros2 run spec_vlm_nav vlm_nav_node, or a launch file",
}


def check_middleware(facts: Facts) -> CheckLines:
    """Which ROS this machine speaks, and whether anything else is there."""
    here = facts.middleware
    said = [here.rmw, f"domain {here.domain}", *filter(None, [here.distro])]
    if here.discovery:
        said.append(f"ROS_AUTOMATIC_DISCOVERY_RANGE={here.discovery}")
    found = ", ".join(said)
    if not facts.has_interfaces:
        remedy = "scripts/build_interfaces.py here, or source the workspace that was built on the robot"
        return fail("middleware", f"{found}; spec_vlm_nav_interfaces is not installed", remedy)
    if facts.nodes or facts.other_nodes:
        return ok("middleware", f"{found}; {len(facts.nodes) + len(facts.other_nodes)} nodes in sight")
    away = " and ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET" if here.discovery == "LOCALHOST" else ""
    remedy = (
        f"set the robot's ROS_DOMAIN_ID and RMW_IMPLEMENTATION{away}, and look for a firewall (UDP multicast)"
    )
    return fail("middleware", f"{found}; no other node is in sight", remedy)


def check_nodes(facts: Facts) -> CheckLines:
    """Our nodes: up, once each, and answering."""
    lines = []
    for name, absent in REQUIRED.items():
        node = facts.nodes.get(name)
        if node is not None:
            lines.append(_node(name, node))
            continue
        there = [other for other in facts.elsewhere if other.rpartition("/")[2] == name]
        place = facts.namespace.rstrip("/")
        if there:
            absent = f"{', '.join(there)} is there: --namespace {there[0].rpartition('/')[0] or '/'}"
        lines.append(fail(name, f"{place}/{name} is not up", absent))
    # The black box has a line of its own.
    lines += [_node(name, facts.nodes[name]) for name in OPTIONAL if name in facts.nodes and name != BLACKBOX]
    return lines


def _node(name: str, node: OurNode) -> CheckLine:
    if node.count > 1:
        return fail(
            name, f"{node.count} nodes are called {node.name}", "end all but one, or give them namespaces"
        )
    if node.values is None:
        return fail(
            name, f"{node.name} is in sight and does not answer", "it hangs, or has just died: see its log"
        )
    if node.value("dry_run", False):
        return warn(name, f"{node.name} is up, dry_run is true: nothing will move", "dry_run:=false, to move")
    return ok(name, f"{node.name} is up")


def check_time(facts: Facts) -> CheckLines:
    """Whether our nodes live by the same clock, and whether that one ticks."""
    simulated = {name: bool(node.value("use_sim_time", False)) for name, node in facts.nodes.items()}
    if not simulated:
        return []
    by_clock = sorted(name for name, value in simulated.items() if value)
    by_wall = sorted(name for name, value in simulated.items() if not value)
    if by_clock and by_wall:
        found = f"use_sim_time is true of {', '.join(by_clock)} and false of {', '.join(by_wall)}"
        return fail("time", found, "set it alike: use_sim_time:=true only with a simulator's or bag's /clock")
    if by_clock and not facts.clocks:
        return fail(
            "time", "use_sim_time is true, and no node publishes /clock", "use_sim_time:=false on a robot"
        )
    if by_wall and facts.clocks:
        found = f"{', '.join(facts.clocks)} publishes /clock, and use_sim_time is false"
        return warn("time", found, "use_sim_time:=true, if stamps are those of the simulator or bag")
    return ok("time", "/clock (use_sim_time)" if by_clock else "each machine's own clock")

# SPDX-License-Identifier: Apache-2.0
"""Checks of middleware, nodes and clocks."""

from __future__ import annotations

from specnav.doctor.robot.checks.line import CheckLine, CheckLines, fail, ok, warn
from specnav.doctor.robot.facts import Facts, OurNode
from specnav.doctor.robot.roles import BLACKBOX, DECIDER, MOVER, OPTIONAL

REQUIRED = {
    MOVER: "nothing can move: ros2 run spec_vlm_nav motion_node, or a launch file",
    DECIDER: "nothing decides: ros2 run spec_vlm_nav vlm_nav_node, or a launch file",
}


def check_middleware(facts: Facts) -> CheckLines:
    """Which middleware and domain this machine uses, and whether other nodes are visible."""
    here = facts.middleware
    said = [here.rmw, f"domain {here.domain}", *filter(None, [here.distro])]
    if here.discovery:
        said.append(f"ROS_AUTOMATIC_DISCOVERY_RANGE={here.discovery}")
    found = ", ".join(said)
    if not facts.has_interfaces:
        remedy = "scripts/build_interfaces.py here, or source the workspace that was built on the robot"
        return fail("middleware", f"{found}; spec_vlm_nav_interfaces is not installed", remedy)
    if facts.nodes or facts.other_nodes:
        return ok("middleware", f"{found}; {len(facts.nodes) + len(facts.other_nodes)} nodes are visible")
    away = " and ROS_AUTOMATIC_DISCOVERY_RANGE=SUBNET" if here.discovery == "LOCALHOST" else ""
    remedy = f"set the robot's ROS_DOMAIN_ID and RMW_IMPLEMENTATION{away}, and check for a firewall (UDP multicast)"
    return fail("middleware", f"{found}; no other node is visible", remedy)


def check_nodes(facts: Facts) -> CheckLines:
    """Whether each of our nodes runs exactly once and responds."""
    lines = []
    for name, absent in REQUIRED.items():
        node = facts.nodes.get(name)
        if node is not None:
            lines.append(_node(name, node))
            continue
        there = [other for other in facts.elsewhere if other.rpartition("/")[2] == name]
        place = facts.namespace.rstrip("/")
        if there:
            absent = f"{', '.join(there)} is running: use --namespace {there[0].rpartition('/')[0] or '/'}"
        lines.append(fail(name, f"{place}/{name} is not running", absent))
    # The black box has a line of its own.
    lines += [_node(name, facts.nodes[name]) for name in OPTIONAL if name in facts.nodes and name != BLACKBOX]
    return lines


def _node(name: str, node: OurNode) -> CheckLine:
    if node.count > 1:
        return fail(
            name, f"{node.count} nodes are called {node.name}", "stop all but one, or give them namespaces"
        )
    if node.values is None:
        return fail(
            name, f"{node.name} is visible but does not respond", "it hangs, or has just died: see its log"
        )
    if node.value("dry_run", False):
        return warn(
            name, f"{node.name} is running with dry_run true: nothing will move", "set dry_run:=false to move"
        )
    return ok(name, f"{node.name} is running")


def check_time(facts: Facts) -> CheckLines:
    """Whether our nodes use the same clock, and whether it ticks."""
    simulated = {name: bool(node.value("use_sim_time", False)) for name, node in facts.nodes.items()}
    if not simulated:
        return []
    by_clock = sorted(name for name, value in simulated.items() if value)
    by_wall = sorted(name for name, value in simulated.items() if not value)
    if by_clock and by_wall:
        found = f"use_sim_time is true for {', '.join(by_clock)} and false for {', '.join(by_wall)}"
        return fail(
            "time", found, "use the same value: use_sim_time:=true only with a simulator's or bag's /clock"
        )
    if by_clock and not facts.clocks:
        return fail(
            "time", "use_sim_time is true, but no node publishes /clock", "use_sim_time:=false on a robot"
        )
    if by_wall and facts.clocks:
        found = f"{', '.join(facts.clocks)} publishes /clock, but use_sim_time is false"
        return warn("time", found, "use_sim_time:=true, if stamps come from the simulator or bag")
    return ok("time", "/clock (use_sim_time)" if by_clock else "each machine's own clock")

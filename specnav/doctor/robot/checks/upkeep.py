# SPDX-License-Identifier: Apache-2.0
"""Checks of the nodes' diagnostics, the verifier, the black box and disk space."""

from __future__ import annotations

from specnav.doctor.robot.checks.line import CheckLines, fail, ok, warn
from specnav.doctor.robot.facts import Diagnostic, Facts
from specnav.doctor.robot.roles import BLACKBOX, DECIDER

WARN, ERROR, STALE = 1, 2, 3
MOST_ROWS = 6
FAR_MS = 250.0
LEAST_MB = 500.0


def check_diagnostics(facts: Facts) -> CheckLines:
    """The rows of /diagnostics that are not ok: our own, then those of other nodes."""
    heard = facts.topics["diagnostics"].heard
    if heard is None or not heard.count:
        if facts.nodes:
            return warn(
                "diagnostics", f"nothing arrived in {facts.seconds:g} s", "our nodes send once a second"
            )
        return []
    prefixes = tuple(f"{name.lstrip('/')}: " for name in facts.our_names)
    ours = [row for row in facts.diagnostics if row.name.startswith(prefixes)] if prefixes else []
    theirs = [row for row in facts.diagnostics if row not in ours]
    lines = []
    for check, rows, is_ours in (("diagnostics", ours, True), ("others' diagnostics", theirs, False)):
        bad = [row for row in rows if row.level in (WARN, ERROR)]
        if any(row.level == ERROR for row in bad):
            say = fail if is_ours else warn
            lines.append(say(check, _told(bad), "see the message of each row"))
        elif bad:
            lines.append(warn(check, _told(bad), "see the message of each row"))
        elif rows:
            stale = sum(row.level == STALE for row in rows)
            waits = f", {stale} waiting for a first command" if stale and is_ours else ""
            lines.append(ok(check, f"{len(rows)} rows, all ok{waits}"))
    return lines


def _told(rows: list[Diagnostic]) -> str:
    ordered = sorted(rows, key=lambda row: -row.level)
    said = [
        f"{'ERROR' if row.level == ERROR else 'WARN'} {row.name}: {row.message}"
        for row in ordered[:MOST_ROWS]
    ]
    return "; ".join(said) + (f"; and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else "")


def check_verifier(facts: Facts) -> CheckLines:
    """Whether the verifier responds to this machine, and how fast."""
    found = facts.verifier
    if found is None:
        return warn(
            "verifier",
            f"not checked: {DECIDER} does not report its address",
            "--verifier tcp://HOST:PORT",
        )
    if found.error:
        return fail(
            "verifier",
            found.error,
            "specnav serve on that machine; the address is vlm_nav_node's `verifier`, the key `verifier_key`",
        )
    said = (
        f"{found.address}: {found.model}, {found.rtt_ms:.1f} ms round trip, {found.worst_ms:.1f} ms at worst"
    )
    if found.rtt_ms > FAR_MS:
        return warn(
            "verifier", said, "decisions take several round trips: use a nearer verifier or a better network"
        )
    return ok("verifier", said)


def check_blackbox(facts: Facts) -> CheckLines:
    """Whether the black box is running."""
    node = facts.nodes.get(BLACKBOX)
    if node is None:
        return warn(
            "black box",
            "is not running: nothing is recorded when something fails",
            "ros2 run spec_vlm_nav blackbox_node",
        )
    if node.count > 1:
        return warn("black box", f"{node.count} nodes are called {node.name}", "stop all but one")
    if node.values is None:
        return warn("black box", f"{node.name} does not respond", "it hangs, or has just died: see its log")
    return ok("black box", f"{node.name} is running")


def check_disk(facts: Facts) -> CheckLines:
    """Whether this machine has disk space for logs and the black box."""
    disk = facts.disk
    if disk is None:
        return []
    needed = max(LEAST_MB, disk.needed_mb)
    found = f"{disk.free_mb / 1e3:.1f} GB free at {disk.folder} (this machine)"
    if disk.free_mb < needed:
        return warn("disk", found, f"logs and the black box need {needed:.0f} MB: free some space")
    return ok("disk", found)

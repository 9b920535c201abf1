# SPDX-License-Identifier: Apache-2.0
"""The checks: facts in, lines out, in the order in which an engineer would search for a fault."""

from __future__ import annotations

from collections.abc import Callable

from specnav.doctor.robot.checks.graph import check_middleware, check_nodes, check_time
from specnav.doctor.robot.checks.line import CheckLine, CheckLines, Verdict
from specnav.doctor.robot.checks.moving import check_commands, check_motion, check_takers
from specnav.doctor.robot.checks.sensors import check_frames, check_sensors, check_stamps
from specnav.doctor.robot.checks.topics import check_qos, check_signs, check_types
from specnav.doctor.robot.checks.upkeep import (
    check_blackbox,
    check_diagnostics,
    check_disk,
    check_verifier,
)
from specnav.doctor.robot.facts import Facts

__all__ = ["CHECKS", "CheckLine", "Verdict", "examine"]

CHECKS: tuple[Callable[[Facts], CheckLines], ...] = (
    check_middleware,
    check_nodes,
    check_time,
    check_sensors,
    check_stamps,
    check_frames,
    check_types,
    check_qos,
    check_signs,
    check_takers,
    check_commands,
    check_motion,
    check_diagnostics,
    check_verifier,
    check_blackbox,
    check_disk,
)


def examine(facts: Facts) -> list[CheckLine]:
    """All lines, in order."""
    lines: list[CheckLine] = []
    for check in CHECKS:
        found = check(facts)
        lines += [found] if isinstance(found, CheckLine) else found
    return lines

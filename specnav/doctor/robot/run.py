# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --robot`: from flags to the exit code."""

from __future__ import annotations

import json
from collections import Counter

from rich.console import Console
from rich.text import Text

from spec_vlm_nav.common.errors import LONGEST_LINE, one_line
from specnav.doctor.robot.checks import CheckLine, Verdict, examine
from specnav.doctor.robot.config import RobotDoctorConfig
from specnav.errors import needs_ros

_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def run_robot_doctor(config: RobotDoctorConfig) -> int:
    """Print one line per check; returns 0 if none is FAIL, else 1. Raises UsageError without ROS."""
    with needs_ros("a look at a robot"):
        from specnav.doctor.robot.gather import gather
    lines = examine(gather(config))
    show(lines, config.json)
    return 1 if any(line.verdict is Verdict.FAIL for line in lines) else 0


def text_of(line: CheckLine, width: int) -> str:
    """One line of the report. width: columns for the name of the check."""
    remedy = f" -> {line.remedy}" if line.remedy else ""
    said = f"{line.verdict.value:<4}  {line.check:<{width}}  "
    return said + one_line(f"{line.found}{remedy}", LONGEST_LINE)  # it may repeat foreign words


def summary(lines: list[CheckLine]) -> str:
    """The last line of the report."""
    counts = Counter(line.verdict for line in lines)
    said = f"{counts[Verdict.OK]} ok, {counts[Verdict.WARN]} warn, {counts[Verdict.FAIL]} FAIL"
    if not counts[Verdict.FAIL]:
        return f"{said}: nothing keeps the robot from obeying"
    first = next(line for line in lines if line.verdict is Verdict.FAIL)
    return f"{said}: begin with {first.check}"


def show(lines: list[CheckLine], as_json: bool) -> None:
    """Print one line per check; as JSON, a list of objects with verdict, check, found and remedy."""
    if as_json:
        rows = [
            {"verdict": line.verdict.value, "check": line.check, "found": line.found, "remedy": line.remedy}
            for line in lines
        ]
        print(json.dumps(rows, indent=1))
        return
    width = max(len(line.check) for line in lines)
    console = Console()
    for line in lines:
        said = Text(text_of(line, width))
        said.stylize(_STYLES[line.verdict], 0, 4)
        # Never folded: one line is one check, so that grep works.
        console.print(said, soft_wrap=True)
    print(summary(lines))

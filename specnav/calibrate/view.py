# SPDX-License-Identifier: Apache-2.0
"""Output of a calibration: each parameter before and after, and what its value means."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from spec_vlm_nav.common.parameters import Value
from specnav.calibrate.core.result import DEFAULTS, CalibrationResult, MeasuredParameter

WIDE = 200  # columns if the output is not a terminal: other programs read it


def meaning(one: MeasuredParameter, given: Mapping[str, Value]) -> str:
    """What a parameter's value means for the robot."""
    if isinstance(one.value, str):
        return "how stop commands are sent"
    value, fast = float(one.value), float({**DEFAULTS, **given}["max_linear"])
    return {
        "actuation_delay_s": f"at {fast:g} m/s it moves {value * fast * 100:.0f} cm before odometry shows it",
        "linear_scale": f"a command of {fast:g} m/s yields {fast * value:.2f} m/s",
        "angular_scale": f"a command of 1 rad/s yields {value:.2f} rad/s",
        "min_linear": f"below {value:g} m/s the base may not move",
        "min_angular": f"below {value:g} rad/s the base may not move",
        "stopping_distance_m": f"it stops {value * 100:.0f} cm earlier for obstacles",
        "response_timeout_s": f"a response within {value:g} s is not a fault",
    }.get(one.name, "")


def table_of(found: CalibrationResult, given: Mapping[str, Value]) -> Table:
    """The table: before, measured, repetitions, meaning."""
    table = Table(title="specnav calibrate", title_justify="left")
    for column in ("parameter", "before", "measured", "repetitions", "meaning"):
        table.add_column(column, overflow="fold")
    before = {**DEFAULTS, **given}
    for one in found.values:
        apart = " (disagree)" if one.is_apart else ""
        table.add_row(
            one.name, str(before[one.name]), str(one.value), f"{one.spread}{apart}", meaning(one, given)
        )
    return table


def show(found: CalibrationResult, given: Mapping[str, Value]) -> None:
    """Print the table and the notes."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    console.print(table_of(found, given))
    for note in found.notes:
        print(note)

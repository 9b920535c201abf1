# SPDX-License-Identifier: Apache-2.0
"""What a calibration prints: each parameter before and after, and what that means for the robot."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from spec_vlm_nav.common.parameters import Value
from specnav.calibrate.core.result import DEFAULTS, CalibrationResult, MeasuredParameter

WIDE = 200  # columns where nothing looks: other programs read the lines


def meaning(one: MeasuredParameter, given: Mapping[str, Value]) -> str:
    """What a parameter does with this value."""
    if isinstance(one.value, str):
        return "how a stop is said"
    value, fast = float(one.value), float({**DEFAULTS, **given}["max_linear"])
    return {
        "actuation_delay_s": f"at {fast:g} m/s it goes {value * fast * 100:.0f} cm that odometry does not show yet",
        "linear_scale": f"{fast:g} m/s commanded are {fast * value:.2f} m/s",
        "angular_scale": f"1 rad/s commanded is {value:.2f} rad/s",
        "min_linear": f"at less than {value:g} m/s the base may stand still",
        "min_angular": f"at less than {value:g} rad/s the base may stand still",
        "stopping_distance_m": f"something ahead stops it {value * 100:.0f} cm earlier",
        "response_timeout_s": f"an answer within {value:g} s is not a fault",
    }.get(one.name, "")


def table_of(found: CalibrationResult, given: Mapping[str, Value]) -> Table:
    """The table: before, measured, repetitions, meaning."""
    table = Table(title="specnav calibrate", title_justify="left")
    for column in ("parameter", "before", "measured", "repetitions", "meaning"):
        table.add_column(column, overflow="fold")
    before = {**DEFAULTS, **given}
    for one in found.values:
        apart = " (apart)" if one.is_apart else ""
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

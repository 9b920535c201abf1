# SPDX-License-Identifier: Apache-2.0
"""How precisely motions end on bases that respond late, before and after a calibration.

    python -m benchmarks.calibrated_bases [--runs 10]

Each row is a simulated base, calibrated by the real procedure. There are three columns per motion: response_watched
false (the delay is unknown), motion_node's defaults (each motion corrects its estimate of the delay as it observes the
base), and calibrated. Each figure is the largest error over several runs, of the true pose once the base stands still.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.parameters import Value
from specnav.calibrate.core.result import calibration
from tests.helpers.imperfect_base import BaseTraits
from tests.helpers.simulated_base import SimulatedBase, calibrate, carry_out

DELAYS_S, SCALES = (0.0, 0.15, 0.3, 0.6), (1.0, 0.85)
TURN, FORWARD = Motion(0.0, math.radians(30)), Motion(0.25, 0.0)
BLIND: Mapping[str, Value] = {"response_watched": False}
MAX_LINEAR = 0.3


@dataclass(frozen=True)
class TableRow:
    """A base and the largest errors on it, signed, in degrees and centimetres; and the states that motions ended in."""

    delay_s: float
    drops_zeros: bool
    scale: float
    parameters: dict[str, Value]
    degrees: tuple[float, ...]  # blind, default, calibrated
    centimetres: tuple[float, ...]
    states: frozenset[str]  # of default and calibrated


def traits(delay_s: float, drops_zeros: bool, scale: float) -> BaseTraits:
    """A base that responds late, and only to at least 0.05 m/s or 0.1 rad/s."""
    return BaseTraits(
        delay_s=delay_s,
        drops_zeros=drops_zeros,
        linear_scale=scale,
        angular_scale=scale,
        deadband_linear=0.05,
        deadband_angular=0.1,
    )


def measure(delay_s: float, drops_zeros: bool, scale: float, runs: int) -> TableRow:
    """Calibrate a base, and carry out both motions with each of the three settings."""
    course = calibrate(SimulatedBase(traits(delay_s, drops_zeros, scale)))
    if course.findings is None:
        raise AssertionError(f"not calibrated: {course.fault}")
    found = calibration(course.findings, MAX_LINEAR, "epsilon").parameters()
    missed: dict[Motion, list[float]] = {TURN: [], FORWARD: []}
    states: set[str] = set()
    for values in (BLIND, {}, found):
        for motion in (TURN, FORWARD):
            ends = [
                carry_out(SimulatedBase(traits(delay_s, drops_zeros, scale), seed), motion, values)
                for seed in range(runs)
            ]
            misses = [math.degrees(e.missed_rad) if motion is TURN else e.missed_m * 100 for e in ends]
            missed[motion].append(max(misses, key=abs))
            if values is not BLIND:
                states |= {end.state for end in ends}
    return TableRow(
        delay_s, drops_zeros, scale, found, tuple(missed[TURN]), tuple(missed[FORWARD]), frozenset(states)
    )


def markdown(row: TableRow) -> str:
    """One line of the table."""
    cells = [f"{row.delay_s:g}", "dropped" if row.drops_zeros else "obeyed", f"{row.scale:g}"]
    cells += [
        f"{float(row.parameters['actuation_delay_s']):.2f}",
        f"{float(row.parameters['linear_scale']):.2f}",
    ]
    cells += [f"{missed:+.1f}" for missed in (*row.degrees, *row.centimetres)]
    return f"| {' | '.join(cells)} | {', '.join(sorted(row.states))} |"


def main(arguments: list[str] | None = None) -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="runs of each motion on each base (default: 10)")
    runs = max(1, parser.parse_args(arguments).runs)
    print(
        "| delay s | zeros | scale | measured delay | measured scale | 30°: blind | default | calibrated "
        "| 25 cm: blind | default | calibrated | ended |"
    )
    print("|" + "---|" * 12)
    for delay_s in DELAYS_S:
        for drops_zeros in (False, True):
            for scale in SCALES:
                print(markdown(measure(delay_s, drops_zeros, scale, runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

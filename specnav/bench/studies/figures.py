# SPDX-License-Identifier: Apache-2.0
"""Helpers of several studies: figures from a run's rows and from the papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specnav.bench.data.papers import figures
from specnav.bench.data.points import PointRecord
from specnav.report.page import shown

FSD_PAPER = "fsd_000"
SPEEDUP = "speedup_vs_ar"
"""The figure of a row: tokens per second relative to `ar` in the same run."""
MISS = ("miss_rate", 100.0)
"""Likewise: verdicts whose next draft was not completely prepared, percent."""
OFF_WORDS = (
    "Off: measured time per token relative to the paper's formula with the run's own times. An answer's first draft "
    "is made while the cloud prefills the prompt. The formulas ignore this, so short answers are faster than predicted."
)


def percent(value: float | None) -> str:
    """A percentage for a table."""
    return shown(value, 1, " %")


def signed(value: float | None) -> str:
    """A difference for a table, percent."""
    return "–" if value is None else f"{value:+.1f} %"


def times(value: float | None) -> str:
    """A factor for a table."""
    return shown(value, 2, "×")


@dataclass(frozen=True)
class System:
    """One system of the early-exit paper. path: its place in papers.yaml. miss: miss rate, percent.

    over_ar: speed-up of `fsd` over cloud AR; the product, if it is printed in two steps.
    """

    name: str
    path: str
    threads: int
    miss: float
    over_ar: float


def systems() -> list[System]:
    """The paper's systems: Tables 5 and 6, and the robot of Table 8."""
    paper = figures()[FSD_PAPER]
    found = [
        System(
            f"{pair.replace('_', ' → ', 1).replace('_', '-')}, {device}",
            f"{FSD_PAPER}.speedup_average.{pair}.{device}",
            paper["system"][pair][device]["threads"],
            one["miss"],
            one["ar_sd"] * one["sd_fsd"],
        )
        for pair, devices in paper["speedup_average"].items()
        for device, one in devices.items()
    ]
    robot = paper["robot"]
    return [*found, System("robot", f"{FSD_PAPER}.robot", robot["threads"], robot["miss"], robot["ar_fsd"])]


def system_of(point: PointRecord | None) -> System | None:
    """The paper's system to which an operating point refers; None without one."""
    places = [figure.where for figure in point.figures] if point else []
    return next((one for one in systems() if any(place.startswith(f"{one.path}.") for place in places)), None)


def printed_speedups(point: PointRecord | None) -> Mapping[str, float]:
    """The paper's speed-ups over `ar` by method; `fsd` also if it is printed in two steps."""
    found = {
        one.method: one.value
        for one in (point.figures if point else ())
        if one.quantity == "speedup" and one.over == "ar"
    }
    system = system_of(point)
    return found if system is None else {"fsd": system.over_ar, **found}

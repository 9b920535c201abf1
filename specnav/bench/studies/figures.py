# SPDX-License-Identifier: Apache-2.0
"""Helpers of several studies: figures from a run's rows and from the papers, and where one line crosses another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from specnav.bench.data.papers import figures
from specnav.bench.data.points import PointRecord
from specnav.report.page import shown

Points = Sequence[tuple[float, float]]
TELL_APART = 0.01
"""Values that differ by less than this share of the smaller count as equal, because runs vary by this much."""
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

    path: str
    threads: int
    miss: float
    over_ar: float


def systems() -> list[System]:
    """The paper's systems: Tables 5 and 6, and the robot of Table 8."""
    paper = figures()[FSD_PAPER]
    found = [
        System(
            f"{FSD_PAPER}.speedup_average.{pair}.{device}",
            paper["system"][pair][device]["threads"],
            one["miss"],
            one["ar_sd"] * one["sd_fsd"],
        )
        for pair, devices in paper["speedup_average"].items()
        for device, one in devices.items()
    ]
    robot = paper["robot"]
    return [*found, System(f"{FSD_PAPER}.robot", robot["threads"], robot["miss"], robot["ar_fsd"])]


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


@dataclass(frozen=True)
class Crossing:
    """Below x the line `before` is lower, above x the line `after` is."""

    x: float
    y: float
    before: str
    after: str


def crossings(lines: Mapping[str, Points]) -> list[Crossing]:
    """Every crossing of two piecewise linear lines, ordered by x.

    Only x values that both lines have are used. A crossing needs a clear order on both sides.
    """
    found = [
        one
        for (name, points), (other, others) in combinations(lines.items(), 2)
        for one in _crossings_of_two(name, dict(points), other, dict(others))
    ]
    return sorted(found, key=lambda one: one.x)


def _meeting(low: float, high: float, one: Mapping[float, float], other: Mapping[float, float]) -> float:
    """The x at which two lines meet between two of their points; the middle if they do not."""
    first, last = one[low] - other[low], one[high] - other[high]
    if first == last or first * last > 0:
        return (low + high) / 2
    return low + (high - low) * first / (first - last)


def _crossings_of_two(
    name: str, points: Mapping[float, float], other: str, others: Mapping[float, float]
) -> list[Crossing]:
    found: list[Crossing] = []
    clear: float | None = None  # the last x at which the order was clear
    for x in sorted(set(points) & set(others)):
        if abs(points[x] - others[x]) <= TELL_APART * min(points[x], others[x]):
            continue
        if clear is not None and (points[x] < others[x]) != (points[clear] < others[clear]):
            at = _meeting(clear, x, points, others)
            y = points[clear] + (points[x] - points[clear]) * (at - clear) / (x - clear)
            before, after = (name, other) if points[clear] < others[clear] else (other, name)
            found.append(Crossing(at, y, before, after))
        clear = x
    return found

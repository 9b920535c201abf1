# SPDX-License-Identifier: Apache-2.0
"""Finds where one measured line crosses another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Points = Sequence[tuple[float, float]]
TELL_APART = 0.01
"""Values that differ by less than this share of the smaller count as equal, because runs vary by this much."""


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

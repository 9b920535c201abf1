# SPDX-License-Identifier: Apache-2.0
"""Detects growth by robust slopes over samples. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specnav.drill.results import GrowthRow, Sample

MOST_PAIRS_OF = 300  # samples; more are thinned out
WARM_UP = 0.25  # share of the samples during which caches fill


@dataclass(frozen=True)
class Allowance:
    """Growth allowed for a healthy process: MB (allocators keep memory), descriptors, threads."""

    rss_mb: float
    fds: float = 1.0
    threads: float = 1.0


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen); 0 for fewer than two points."""
    step = max(1, len(points) // MOST_PAIRS_OF)
    thinned = points[::step]
    slopes = [
        (b[1] - a[1]) / (b[0] - a[0])
        for place, a in enumerate(thinned)
        for b in thinned[place + 1 :]
        if b[0] > a[0]
    ]
    return median(slopes) if slopes else 0.0


def growth(process: str, samples: Sequence[Sample], allowed: Allowance) -> list[GrowthRow]:
    """Growth of a process after its warm-up, for each quantity."""
    kept = list(samples[int(len(samples) * WARM_UP) :])
    if len(kept) < 2:
        return []
    watched = kept[-1].t_s - kept[0].t_s
    rows = []
    for quantity, unit, limit in (
        ("rss_mb", "MB", allowed.rss_mb),
        ("fds", "", allowed.fds),
        ("threads", "", allowed.threads),
    ):
        points = [(s.t_s, float(getattr(s, quantity))) for s in kept]
        grew = slope(points) * watched
        rows.append(
            GrowthRow(
                process=process,
                quantity={"rss_mb": "memory", "fds": "descriptors", "threads": "threads"}[quantity],
                unit=unit,
                first=points[0][1],
                last=points[-1][1],
                grew=grew,
                allowed=limit,
                flat=grew <= limit,
            )
        )
    return rows

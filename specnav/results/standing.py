# SPDX-License-Identifier: Apache-2.0
"""Computes how long the robot was stopped, and why, from its path and the times of its commands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from specnav.results.trace import PathPoint

LATE_MS = 250.0
"""A decision is late if it takes longer from camera to action: about five times its time on an idle machine."""
MOVING_S = 0.3
"""Longest time between two path points of a moving robot."""


def stood_s(path: Sequence[PathPoint], moments: Iterable[float]) -> float:
    """Seconds for which the robot was stopped around these moments (episode clock); each stop counts once.

    A stop lasts from one path point to the next. A stop with no point after it does not count.
    """
    times = [point.t_s for point in path]
    stands = set()
    for moment in moments:
        place = bisect_right(times, moment)
        if 0 < place < len(times) and times[place] - times[place - 1] > MOVING_S:
            stands.add((times[place - 1], times[place]))
    return sum(end - begin for begin, end in stands)


def is_late(time_to_action_ms: float | None) -> bool:
    """Whether a decision was late; None means that it moved nothing."""
    return time_to_action_ms is not None and time_to_action_ms > LATE_MS

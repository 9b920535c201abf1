# SPDX-License-Identifier: Apache-2.0
"""How long the robot stood, and for what: read off the path that it drove and the moments of its commands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from specnav.results.trace import PathPoint

LATE_MS = 250.0
"""A decision is late that takes longer from camera to action: about five times what it takes on a machine with nothing
else to do."""
MOVING_S = 0.3
"""A robot that moves is heard of more often than this."""


def stood_s(path: Sequence[PathPoint], moments: Iterable[float]) -> float:
    """Seconds that the robot stood around these moments (episode clock), each stand counted once.

    A stand lasts from the last place that it drove through to the next one; what nothing follows is not counted.
    """
    times = [point.t_s for point in path]
    stands = set()
    for moment in moments:
        place = bisect_right(times, moment)
        if 0 < place < len(times) and times[place] - times[place - 1] > MOVING_S:
            stands.add((times[place - 1], times[place]))
    return sum(end - begin for begin, end in stands)


def is_late(time_to_action_ms: float | None) -> bool:
    """Whether a decision came late; one that moved nothing has no such time."""
    return time_to_action_ms is not None and time_to_action_ms > LATE_MS

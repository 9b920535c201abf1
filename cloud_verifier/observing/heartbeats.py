"""Heartbeats of loops: health is that they go round, not that their threads are there."""

from __future__ import annotations

import time
from collections.abc import Callable

BEAT_S = 1.0
"""A loop that has nothing to do goes round once in so long."""
SLOW_S = 5.0
"""A loop that has not gone round for longer is not ready for more."""
STUCK_S = 30.0
"""One that has not for so long is stuck. A forward of a large model takes seconds."""


class Heartbeats:
    """When each loop last went round; for any threads. Each loop marks its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beats: dict[str, float] = {}

    def mark(self, loop: str) -> None:
        """A loop goes round."""
        self._beats[loop] = self._clock()

    def end(self, loop: str) -> None:
        """A loop has ended, as it was told to."""
        self._beats.pop(loop, None)

    def late(self, seconds: float) -> str:
        """Which loop has not gone round for longer than so, and for how long; "" where all have."""
        now_s = self._clock()
        for loop, at_s in list(self._beats.items()):
            if now_s - at_s > seconds:
                return f"the loop of the {loop} has not gone round for {now_s - at_s:.0f} s"
        return ""

    def ages(self) -> dict[str, float]:
        """Seconds since each loop last went round."""
        now_s = self._clock()
        return {loop: now_s - at_s for loop, at_s in list(self._beats.items())}

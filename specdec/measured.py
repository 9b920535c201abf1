"""What the edge measures while it decodes: the times of a forward on either side, the link, and what is accepted.

Medians over the last rounds, so that one hiccup decides nothing. None until something was measured.
"""

from __future__ import annotations

from collections import deque

_WINDOW = 32
_FORGET = 0.98
_MAX_DEPTH = 64


class RunningMedian:
    """The median of the last values; worked out when it is asked for, once a value."""

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_WINDOW)
        self._median: float | None = None

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._median = None

    @property
    def value(self) -> float | None:
        """The median (the upper one of two in the middle); None without values."""
        if self._median is None and self._values:
            self._median = sorted(self._values)[len(self._values) // 2]
        return self._median


class Measured:
    """Live figures of one edge and its verifier, kept over the answers. Times in seconds."""

    def __init__(self) -> None:
        self._draft = RunningMedian()
        self._ahead = RunningMedian()
        self._verify = RunningMedian()
        self._rtt = RunningMedian()
        self._tried = [0.0] * _MAX_DEPTH
        self._kept = [0.0] * _MAX_DEPTH

    def drafted(self, forward_s: float) -> None:
        """One forward of the draft model."""
        self._draft.add(forward_s)

    def drafted_ahead(self, forward_s: float) -> None:
        """One forward of the draft model while a verdict was out, of as many rows as share one."""
        self._ahead.add(forward_s)

    def round(self, verify_s: float, rtt_s: float, depth: int, accepted: int) -> None:
        """One verdict on a draft `depth` deep of which `accepted` tokens stay."""
        self._verify.add(verify_s)
        self._rtt.add(rtt_s)
        for place in range(min(depth, accepted + 1, _MAX_DEPTH)):
            self._tried[place] = _FORGET * self._tried[place] + 1.0
            self._kept[place] = _FORGET * self._kept[place] + (place < accepted)

    @property
    def draft_s(self) -> float | None:
        """One draft forward (Tp)."""
        return self._draft.value

    @property
    def ahead_s(self) -> float | None:
        """One draft forward while a verdict is out."""
        return self._ahead.value

    @property
    def verify_s(self) -> float | None:
        """One verification (Tq)."""
        return self._verify.value

    @property
    def rtt_s(self) -> float | None:
        """There and back, without what the cloud did meanwhile."""
        return self._rtt.value

    def acceptance(self, depth: int) -> float:
        """Chance that a draft's token at `depth` (0 is the first) stays if all before it did.

        Starts from a guess of 0.7 that two dozen rounds outweigh; a depth that was never tried is like the
        deepest one that was.
        """
        place = min(depth, _MAX_DEPTH - 1)
        while place > 0 and self._tried[place] < 1.0:
            place -= 1
        return (self._kept[place] + 1.4) / (self._tried[place] + 2.0)

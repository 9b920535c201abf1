"""What the edge measures while it decodes: the times of a forward on either side, the link, and what is accepted.

Medians over the last rounds, so that one hiccup decides nothing. None until something was measured.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_WINDOW = 32
_FORGET = 0.98
_MAX_DEPTH = 64


class Measured:
    """Live figures of one edge and its verifier, kept over the answers. Times in seconds."""

    def __init__(self) -> None:
        self._draft: deque[float] = deque(maxlen=_WINDOW)
        self._verify: deque[float] = deque(maxlen=_WINDOW)
        self._rtt: deque[float] = deque(maxlen=_WINDOW)
        self._tried = [0.0] * _MAX_DEPTH
        self._kept = [0.0] * _MAX_DEPTH

    def drafted(self, forward_s: float) -> None:
        """One forward of the draft model."""
        self._draft.append(forward_s)

    def round(self, verify_s: float, rtt_s: float, depth: int, accepted: int) -> None:
        """One verdict on a draft `depth` deep of which `accepted` tokens stay."""
        self._verify.append(verify_s)
        self._rtt.append(rtt_s)
        for place in range(min(depth, accepted + 1, _MAX_DEPTH)):
            self._tried[place] = _FORGET * self._tried[place] + 1.0
            self._kept[place] = _FORGET * self._kept[place] + (place < accepted)

    @property
    def draft_s(self) -> float | None:
        """One draft forward (Tp)."""
        return median(self._draft) if self._draft else None

    @property
    def verify_s(self) -> float | None:
        """One verification (Tq)."""
        return median(self._verify) if self._verify else None

    @property
    def rtt_s(self) -> float | None:
        """There and back, without what the cloud did meanwhile."""
        return median(self._rtt) if self._rtt else None

    def acceptance(self, depth: int) -> float:
        """Chance that a draft's token at `depth` (0 is the first) stays if all before it did.

        Starts from a guess of 0.7 that two dozen rounds outweigh; a depth that was never tried is like the
        deepest one that was.
        """
        place = min(depth, _MAX_DEPTH - 1)
        while place > 0 and self._tried[place] < 1.0:
            place -= 1
        return (self._kept[place] + 1.4) / (self._tried[place] + 2.0)

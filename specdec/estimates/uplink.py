# SPDX-License-Identifier: Apache-2.0
"""What an upload costs, from the traffic itself: exchanges of different sizes tell what a byte takes, no probe is sent.

An exchange is everything that went up before a reply. Its last byte passes the link no earlier than

    max over its messages i of  t_i + byte_s * (bytes of message i and those behind it)

because the link may have been idle before message i, never between i and the end. What the reply took beyond that is
the round trip of a small message. So the message where the maximum lies gives one point (bytes, seconds). The slope of
a line through the points is the cost of a byte: the median of the slopes of all pairs, each weighted by how far its
sizes are apart, so that no hiccup decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from statistics import median

_WINDOW = 12
"""Exchanges that count: a link that changes is known anew after half as many."""
_LEAST_DIFFERENCE = 1448
"""Points whose sizes differ by less than a packet tell nothing of what a byte takes."""
_LEAST_PAIRS = 3


class Uplink:
    """Cost of an upload on one link. byte_s: None until exchanges of different sizes were seen."""

    def __init__(self) -> None:
        self._points: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._prompts: deque[tuple[int, float]] = deque(maxlen=2)
        self._messages: deque[float] = deque(maxlen=_WINDOW)
        self._found: float | None = None
        self._known = True
        self._token_bytes = 0.0

    def handed_over(self, seconds: float) -> None:
        """One part of a draft was made into a message and handed over in this time."""
        self._messages.append(seconds)

    def exchanged(
        self, messages: Sequence[tuple[float, int]], token_bytes: float, answered_s: float
    ) -> None:
        """A draft and its verdict. messages: when each left (seconds) and its bytes. token_bytes: of one of its tokens.
        answered_s: when the verdict came, less the cloud's time.
        """
        byte_s = self.byte_s or 0.0
        behind, points = 0, []
        for left_s, size in reversed(messages):
            behind += size
            points.append((left_s + byte_s * behind, behind, answered_s - left_s))
        _, size, seconds = max(points)
        self._points.append((size, seconds))
        self._token_bytes = token_bytes
        self._known = False

    def opened(self, size: int, seconds: float) -> None:
        """A prompt of this many bytes, and the reply to it, likewise."""
        self._prompts.append((size, seconds))
        self._known = False

    @property
    def message_s(self) -> float:
        """What a part costs the edge, whatever its size."""
        return median(self._messages) if self._messages else 0.0

    @property
    def token_s(self) -> float | None:
        """What a token of a draft takes on the way up, with what goes along with it; None where nothing tells."""
        return None if self.byte_s is None else self.byte_s * self._token_bytes

    @property
    def byte_s(self) -> float | None:
        """What a byte takes on the way up; None where nothing tells."""
        if not self._known:
            self._found, self._known = self._fit(), True
        return self._found

    def _fit(self) -> float | None:
        points = [*self._prompts, *self._points]
        slopes = [
            ((seconds - before) / (size - less), abs(size - less))
            for place, (size, seconds) in enumerate(points)
            for less, before in points[:place]
            if abs(size - less) >= _LEAST_DIFFERENCE
        ]
        if len(slopes) < _LEAST_PAIRS:
            return None
        return max(0.0, _weighted_median(slopes))


def _weighted_median(values: Sequence[tuple[float, int]]) -> float:
    """values: (value, weight)."""
    ordered = sorted(values)
    half = sum(weight for _, weight in ordered) / 2
    passed = accumulate(weight for _, weight in ordered)
    return next(value for (value, _), so_far in zip(ordered, passed, strict=True) if so_far >= half)

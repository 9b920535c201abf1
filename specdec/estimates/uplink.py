# SPDX-License-Identifier: Apache-2.0
"""The cost of an upload, from normal traffic: exchanges of different sizes show the time per byte, without probes.

An exchange is everything that was sent before a reply. Its last byte passes the link no earlier than

    max over its messages i of  t_i + byte_s * (bytes of message i and all later ones)

because the link may have been idle before message i, but not between i and the end. The remaining time until the reply
is the round trip of a small message. So the message at the maximum gives one point (bytes, seconds). The slope of a
line through the points is the cost of a byte. It is the median of the slopes of all pairs, weighted by the difference
of their sizes, so that no outlier decides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from statistics import median

_WINDOW = 12
"""Exchanges to use; after a change of the link, half as many suffice to see it."""
_LEAST_DIFFERENCE = 1448
"""Points whose sizes differ by less than one packet say nothing about the time per byte."""
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
        """Building and sending one part of a draft took this long."""
        self._messages.append(seconds)

    def exchanged(
        self, messages: Sequence[tuple[float, int]], token_bytes: float, answered_s: float
    ) -> None:
        """A draft and its verdict.

        Args:
            messages: When each message was sent (seconds), and its bytes.
            token_bytes: Bytes per token of the draft.
            answered_s: When the verdict came, minus the cloud's time.
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
        """A prompt of `size` bytes and its reply. seconds: from sending to the reply, minus the cloud's time."""
        self._prompts.append((size, seconds))
        self._known = False

    @property
    def message_s(self) -> float:
        """Seconds that the edge spends on one part, whatever its size."""
        return median(self._messages) if self._messages else 0.0

    @property
    def token_s(self) -> float | None:
        """Uplink seconds per draft token, with the data sent along with it; None if unknown."""
        return None if self.byte_s is None else self.byte_s * self._token_bytes

    @property
    def byte_s(self) -> float | None:
        """Uplink seconds per byte; None if unknown."""
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

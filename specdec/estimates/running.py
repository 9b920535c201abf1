"""Medians and means of the last values. None until there is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

_OUTLIER = 4.0
"""So many times the median: what is more counts as that much."""


def _median(values: Iterable[float]) -> float:
    """The upper one of two in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


class RunningMedian:
    """The median of the last values; worked out when it is asked for, once a value."""

    def __init__(self, window: int = 32) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._median: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._median = None

    @property
    def value(self) -> float | None:
        """The median (the upper one of two in the middle); None without values."""
        if self._median is None and self._values:
            self._median = _median(self._values)
        return self._median


class QuietMedian:
    """The median of what the last forwards would have taken with nobody beside."""

    def __init__(self, window: int = 32) -> None:
        self._values: deque[tuple[float, float]] = deque(maxlen=window)
        self._found: tuple[float, float | None] = (0.0, None)

    def add(self, seconds: float, share: float = 0.0) -> None:
        """One more. share: of its time somebody else computed."""
        self._values.append((seconds, share))
        self._found = (0.0, None)

    def value(self, cost: float) -> float | None:
        """cost: of a second of somebody else's work, as is known by now; None without values."""
        if self._values and (self._found[1] is None or self._found[0] != cost):
            self._found = (cost, _median(seconds * (1.0 - cost * share) for seconds, share in self._values))
        return self._found[1]


class CalmMean:
    """The mean of the last values where no hiccup counts as more than a few times the median: waits that vary, of which
    the median would tell too little.
    """

    def __init__(self, window: int = 12) -> None:
        self._values: deque[float] = deque(maxlen=window)
        self._mean: float | None = None

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """One more value."""
        self._values.append(value)
        self._mean = None

    @property
    def value(self) -> float | None:
        """The mean; None without values."""
        if self._mean is None and self._values:
            most = _OUTLIER * _median(self._values)
            self._mean = sum(min(value, most) for value in self._values) / len(self._values)
        return self._mean


class RunningMean:
    """A mean that the last values count most in; begins as a guess that a few of them outweigh."""

    def __init__(self, guess: float) -> None:
        self._guess, self._guessed = guess, 4.0
        self._sum = self._weight = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self._sum, self._weight = 0.95 * self._sum + value, 0.95 * self._weight + 1.0
        self._guessed *= 0.95

    @property
    def value(self) -> float:
        """The mean as it seems now."""
        return self.against(self._guess)

    def against(self, guess: float) -> float:
        """The same with another guess, where one is at hand that knows more."""
        return (self._sum + self._guessed * guess) / (self._weight + self._guessed)

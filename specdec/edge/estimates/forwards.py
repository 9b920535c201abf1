"""What forwards take by the rows that share them, on a device whose load may change at any time.

Two things are kept apart: how much more some rows cost than others, which stays as it is, and how fast the device is at
present, which all forwards tell, whatever their rows. So a cloud that gets slower while trees are sent is known to be
slower for single rows, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median_high

_ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
_PRESENT = 8
"""Forwards that say how fast the device is at present."""
_LEAST_RATE = 0.05
"""Of a further forward, in what rows are held to cost."""
_SETTLED = 3
_HICCUP = 1.2
"""Once so many forwards of so many rows were timed, one that is further off, times as long or as short, counts as so
far off.
"""


class ForwardTimes:
    """What was measured, and what was told before."""

    def __init__(self) -> None:
        self._latest: deque[tuple[int, int, float]] = deque(maxlen=_PRESENT)
        """Rows, their class, seconds."""
        self._costs: dict[int, float] = {}
        self._seen: dict[int, int] = {}
        self._told: list[tuple[int, float]] = []
        self._found: dict[int, float] = {}

    def add(self, rows: int, seconds: float) -> None:
        """One forward more.

        Where those before it had as many rows, it says how fast the device is, not what these rows cost: that shows
        only beside forwards of other rows.
        """
        if seconds <= 0.0:
            return
        self._found.clear()
        row_class = _row_class(rows)
        seen, present = self._seen.get(row_class, 0), self._present()
        self._seen[row_class] = seen + 1
        if row_class not in self._costs:
            if present is not None and not self._told:  # how much more it costs; of the present it says nothing
                self._costs[row_class] = seconds / present
                return
            self._costs[row_class] = 1.0 if self._told else seconds
        others = self._present(without=row_class)
        if others is not None:
            off = seconds / (self._usual(rows, row_class) * others)
            if seen >= _SETTLED:
                off = min(max(off, 1.0 / _HICCUP), _HICCUP)
            self._costs[row_class] *= off ** max(1.0 / (seen + 2.0), _LEAST_RATE)
        self._latest.append((rows, row_class, seconds))

    def _present(self, without: int | None = None) -> float | None:
        """How many times as long as usual forwards take now. without: forwards of this class do not count."""
        shares = [seconds / self._usual(rows, one) for rows, one, seconds in self._latest if one != without]
        return median_high(shares) if shares else None

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What somebody has tried, (rows, microseconds)."""
        told = [(rows, us / 1e6) for rows, us in row_us]
        if told == self._told:
            return
        self._found.clear()
        if self._costs:  # what was measured is from now on the share of what was told
            before = {one: self._usual(one, one) for one in self._costs}
            self._told = told
            self._costs = {one: seconds / self._told_of(one) for one, seconds in before.items()}
        self._told = told

    def measured_s(self, rows: int) -> float | None:
        """One of so many rows: no longer than one of more rows was found to take, which chance may say.

        Where none of so many was measured: what comes nearest, times what was told of the difference. None before any
        was measured.
        """
        if rows in self._found:
            return self._found[rows]
        present = self._present()
        if present is None:
            return None
        wanted = _row_class(rows)
        near = wanted if wanted in self._costs else min(self._costs, key=lambda one: (abs(one - wanted), one))
        values = [self._usual(rows, near)]
        values += [self._usual(one, one) for one in self._costs if one > wanted]
        self._found[rows] = present * min(values)
        return self._found[rows]

    def usual_s(self, rows: int) -> float | None:
        """The same, but None where none of so many rows was measured, and nothing told of them."""
        return self.measured_s(rows) if self._told or _row_class(rows) in self._costs else None

    def _usual(self, rows: int, row_class: int) -> float:
        """Of so many rows with the cost of a class."""
        return self._costs[row_class] * self._told_of(rows)

    @property
    def was_told(self) -> bool:
        """Whether anything was told."""
        return bool(self._told)

    def told_s(self, rows: int) -> float | None:
        """What was told of so many rows; None where nothing was."""
        return self._told_of(rows) if self._told else None

    def _told_of(self, rows: int) -> float:
        """Straight lines between the numbers of rows that were tried; 1 where nothing was told."""
        if not self._told:
            return 1.0
        before = self._told[0]
        for after in self._told:
            if rows <= after[0]:
                share = (rows - before[0]) / max(after[0] - before[0], 1)
                return max(before[1] + share * (after[1] - before[1]), 1e-9)
            before = after
        return max(before[1], 1e-9)


def _row_class(rows: int) -> int:
    return next((limit for limit in _ROW_CLASSES if rows <= limit), _ROW_CLASSES[-1])

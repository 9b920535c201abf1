"""What forwards take by the rows that share them, on a device whose load may change at any time.

Three things are kept apart: how fast the device is at present, which all forwards tell, whatever their rows; how much
more some rows cost than one, which stays as it is; and what it costs that somebody else computes meanwhile, which shows
where the other device is the same: nothing where each has its own. So a cloud that gets slower while trees are sent is
known to be slower for single rows, too, and one that is slow only while the edge drafts is not taken for a slow one. A
forward that takes longer than expected is laid to what is known least of: an extended Kalman filter over logarithms of
seconds, whose state is the device's present, for each class of rows their cost, and the cost of what goes on beside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

_ROW_CLASSES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)
_NOISE = 0.1
"""Of one forward, as a share; all figures are standard deviations."""
_DRIFT = 0.03
"""Of the device, from one forward to the next."""
_UNKNOWN, _UNKNOWN_TOLD = 3.0, 1.0
"""Of the device before any, where nobody has told what it takes when it is idle, and where somebody has."""
_UNKNOWN_COST, _COST_DRIFT = 0.3, 0.005
"""Of what somebody else's work beside costs: before any, and from one forward to the next."""
MOST_COST = 0.8
"""Of a second of that, at most."""
_SURE_OF_COST = 0.15
"""Where that is known less well, and everything was measured beside such work, a forward without is due."""
_MOSTLY = 0.5
"""A forward that somebody else worked through so much of says nothing of one with nobody beside."""
_TOLD, _UNTOLD = 0.2, 0.4
"""Of what rows cost, each time they double, where somebody has told it and where nobody has."""
_ODD = 3.0
"""Further off than so many deviations is a hiccup, which says nothing, or the device has changed: if the next one is,
too.
"""


class ForwardTimes:
    """What was measured, and what was told before."""

    def __init__(self) -> None:
        self._told: list[tuple[int, float]] = []
        self._begin()

    def _begin(self) -> None:
        """Nothing is measured. The state: the device, then the rows' costs, logarithms; the rows' may be anything that
        a random walk by doublings might make of them (so what is near costs alike), and one row's is 0.
        """
        doublings = numpy.log2(_ROW_CLASSES)
        spread = _TOLD if self._told else _UNTOLD
        self._mean = numpy.zeros(2 + len(_ROW_CLASSES))
        self._spread = numpy.zeros((self._mean.size, self._mean.size))
        self._spread[0, 0] = (_UNKNOWN_TOLD if self._told else _UNKNOWN) ** 2
        self._spread[1:-1, 1:-1] = spread**2 * numpy.minimum.outer(doublings, doublings)
        self._spread[-1, -1] = _UNKNOWN_COST**2
        self._beside_all = 0
        self._shift = numpy.zeros(self._mean.size)
        self._said: tuple[float, ...] = ()
        self._seen: set[int] = set()
        self._odd = 0.0
        self._found: dict[int, float] = {}

    def add(self, rows: int, seconds: float, beside_s: float = 0.0) -> None:
        """One forward more. beside_s: of its time somebody else computed who may share the device."""
        if seconds <= 0.0:
            return
        self._found.clear()
        place, share = _class_of(rows), min(beside_s / seconds, 1.0)
        self._beside_all = self._beside_all + 1 if share > _MOSTLY else 0
        alone = 1.0 - self.beside_cost * share
        off = math.log(alone * seconds / self._told_of(rows)) - self._mean[0] - self._mean[1 + place]
        self._spread[0, 0] += _DRIFT**2
        self._spread[-1, -1] += _COST_DRIFT**2
        by_cost = share / alone
        with_all = self._spread[0] + self._spread[1 + place] + by_cost * self._spread[-1]
        variance = with_all[0] + with_all[1 + place] + by_cost * with_all[-1] + _NOISE**2
        if self._seen and abs(off) > _ODD * math.sqrt(variance):
            last, self._odd = self._odd, off
            if last * off <= 0.0:
                return
            self._spread[0, 0] += off**2  # the device has changed
            with_all[0] += off**2
            variance += off**2
        else:
            self._odd = 0.0
        self._mean += with_all * (off / variance)
        self._spread -= numpy.outer(with_all, with_all / variance)
        self._mean[-1] = min(max(self._mean[-1], 0.0), MOST_COST)
        self._seen.add(place)

    @property
    def beside_cost(self) -> float:
        """Of a second of somebody else's work beside a forward, the part that this gets longer by: from 0, a device
        each, up; 0.5 where they share one evenly.
        """
        return float(self._mean[-1])

    @property
    def quiet_is_due(self) -> bool:
        """Whether somebody else worked beside all of the last forwards, and what that costs is not known."""
        return self._beside_all >= 2 and self._spread[-1, -1] > _SURE_OF_COST**2

    def told(self, row_us: Sequence[tuple[int, int]]) -> None:
        """What somebody has tried, (rows, microseconds)."""
        told = [(rows, us / 1e6) for rows, us in row_us]
        if told == self._told:
            return
        cost, sure = self._mean[-1], self._spread[-1, -1]
        before = [
            (_ROW_CLASSES[place], self._usual_s(_ROW_CLASSES[place], place)) for place in sorted(self._seen)
        ]
        self._told = told
        self._begin()
        self._mean[-1], self._spread[-1, -1] = cost, sure
        for rows, seconds in before:  # what was measured still holds
            self.add(rows, seconds)

    def measured_s(self, rows: int, other: ForwardTimes | None = None) -> float | None:
        """One of so many rows with nobody beside: no longer than one of more rows was found to take, which chance may
        say. other: the other device, which may know better what it costs to share one.

        Where none of so many was measured: what comes nearest, times what was told of the difference. None before any
        was measured.
        """
        if not self._seen:
            return None
        if other is not None:
            self._hear_of_cost(other)
        if rows not in self._found:
            wanted = _class_of(rows)
            larger = [self._usual_s(_ROW_CLASSES[place], place) for place in self._seen if place > wanted]
            self._found[rows] = min([self._usual_s(rows, wanted), *larger])
        return self._found[rows]

    def _hear_of_cost(self, other: ForwardTimes) -> None:
        """What the other device's forwards say of the cost shifts what these say of all else."""
        said = (other._mean[-1], other._spread[-1, -1], self._mean[-1], self._spread[-1, -1])
        if said != self._said:
            self._said = said
            self._found.clear()
            self._shift = self._spread[-1] * ((said[0] - said[2]) / (said[1] + said[3]))

    def _usual_s(self, rows: int, place: int) -> float:
        """Of so many rows with the cost of a class."""
        device, cost = self._mean[0] + self._shift[0], self._mean[1 + place] + self._shift[1 + place]
        return math.exp(device + cost) * self._told_of(rows)

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


def _class_of(rows: int) -> int:
    """The place of the class that so many rows belong to."""
    return next((place for place, limit in enumerate(_ROW_CLASSES) if rows <= limit), len(_ROW_CLASSES) - 1)

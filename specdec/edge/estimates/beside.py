"""What drafting costs a cloud that computes meanwhile: nothing where each has a device of its own, much where they
share one. Told from forwards that drafting went on beside, and others: the share of its usual speed that such a one has
is a straight line by the share of its time that was drafted in, and the slope is the cost.
"""

from __future__ import annotations

_KEPT = 0.98
_RIDGE = 0.2
"""As much evidence for a cost of nothing, as squares of shares."""
_FEW, _KNOWN = 1.5, 0.3
"""Forwards with more and with less beside them can be compared when squares of shares come to so much."""
MOST_COST = 0.8
_MOST = 2.0
"""Forwards that took less than half the usual count as half."""


class Beside:
    """Of a second of drafting beside a forward of the cloud, the part that this gets longer by."""

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    def add(self, usual_s: float, took_s: float, beside_s: float) -> None:
        """A forward of the cloud. usual_s: what such a one takes at present; beside_s: of its time the edge drafted."""
        if usual_s <= 0.0 or took_s <= 0.0:
            return
        x, y = min(beside_s / took_s, 1.0), 1.0 - min(usual_s / took_s, _MOST)
        self._weight = _KEPT * self._weight + 1.0
        self._x, self._y = _KEPT * self._x + x, _KEPT * self._y + y
        self._xx, self._xy = _KEPT * self._xx + x * x, _KEPT * self._xy + x * y

    @property
    def _spread(self) -> float:
        return self._xx - self._x * self._x / self._weight if self._weight else 0.0

    @property
    def quiet_is_due(self) -> bool:
        """Whether so much was drafted beside all forwards that one without is to be looked at."""
        return self._weight >= _FEW and self._spread < _KNOWN and self._x > 0.5 * self._weight

    @property
    def cost(self) -> float:
        """From 0, a device each, up; 0.5 where they share one evenly."""
        if not self._weight:
            return 0.0
        slope = (self._xy - self._x * self._y / self._weight) / (self._spread + _RIDGE)
        return min(max(slope, 0.0), MOST_COST)

    def quiet_s(self, took_s: float, beside_s: float) -> float:
        """What a forward would have taken by itself."""
        return took_s - self.cost * min(beside_s, took_s)

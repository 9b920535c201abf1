"""How long a forward takes by its rows, learnt from those that ran."""

from __future__ import annotations

_FORGET = 0.98
"""A forward counts so much less with every one after it: some fifty are remembered."""


class RowCost:
    """A straight line through (rows, seconds) of past forwards, the latest weighing most."""

    def __init__(self) -> None:
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def ran(self, rows: int, seconds: float) -> None:
        """One forward more."""
        self._weight = _FORGET * self._weight + 1
        self._rows = _FORGET * self._rows + rows
        self._seconds = _FORGET * self._seconds + seconds
        self._squares = _FORGET * self._squares + rows * rows
        self._products = _FORGET * self._products + rows * seconds

    def rows_within(self, seconds: float) -> int | None:
        """How many rows a forward may have to end in time, at least 1; None where rows make no difference so far."""
        if not self._weight:
            return None
        spread = self._weight * self._squares - self._rows**2
        slope = self._weight * self._products - self._rows * self._seconds
        if spread <= 1e-6 * self._squares * self._weight or slope <= 0:
            return None
        a_row = slope / spread
        without = (self._seconds - a_row * self._rows) / self._weight
        return max(1, int((seconds - without) / a_row + 1e-6))

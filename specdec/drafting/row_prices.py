# SPDX-License-Identifier: Apache-2.0
"""How many rows of a draft forward pass are worth filling, from measured times per row count.

On most devices rows are free up to some number and then cost much more. Up to that cliff all rows are filled; beyond
it, only rows that pay. Without prices all rows are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

CLIFF = 1.3
"""One more row is a cliff if the pass then takes this many times as long; smaller ratios are mostly noise."""
RETRIED = 64
"""Every this many forward passes another row count is tried, because costs may have changed."""
LOOKED_AT = 16
"""Every this many forward passes the prices are read."""


class RowPrices:
    """price_s: seconds of a forward pass over n rows, None if unknown. tried: prices were known before any pass, so
    none is spent on trying. most: most rows per pass.
    """

    def __init__(self, most: int) -> None:
        self.price_s: Callable[[int], float | None] = lambda rows: None
        self.tried = False
        self.most = most
        self._tries = [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]
        self._forwards = 0
        self._prices: dict[int, float] = {}

    def beside(self, values: Sequence[float]) -> int:
        """How many rows to add to one that is needed anyway: those that save more time later than they take.

        values: expected worth of each row, in forward passes saved, in the order of filling.
        """
        if tried := self._next():
            return tried - 1
        if len(self._prices) < 2:
            return self.most - 1
        alone_s = self._prices[1]
        return max(self._prices, key=lambda rows: sum(values[: rows - 1]) * alone_s - self._prices[rows]) - 1

    def ahead(self, values: Sequence[float]) -> int:
        """How many rows to fill in a pass that no thread waits for: the number with the most value per second."""
        if not self.most:
            return 0
        if tried := self._next():
            return tried
        if len(self._prices) < 2:
            return self.most
        return max(self._prices, key=lambda rows: sum(values[:rows]) / self._prices[rows])

    def _next(self) -> int:
        """Count a forward pass; returns the row count it should try, or 0 for as many as pay."""
        if self._forwards % LOOKED_AT == 0 and not self._look():
            return 0
        if self.tried and not self._forwards:
            self._forwards = len(self._tries)
        self._forwards += 1
        if self._forwards <= len(self._tries):
            return self._tries[self._forwards - 1]
        turn, between = divmod(self._forwards, RETRIED)
        return 0 if between else self._tries[turn % len(self._tries)]

    def _look(self) -> bool:
        """Store the prices of one row, of the last row before each cliff, and of `most` rows; False without prices."""
        prices = [price for rows in range(1, self.most + 1) if (price := self.price_s(rows)) is not None]
        if len(prices) < self.most:
            return False
        cliffs = [
            rows for rows, (price, dearer) in enumerate(pairwise(prices), start=1) if dearer > CLIFF * price
        ]
        self._prices = (
            {rows: max(prices[rows - 1], 1e-9) for rows in {1, *cliffs, self.most}} if cliffs else {}
        )
        return True

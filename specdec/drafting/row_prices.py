# SPDX-License-Identifier: Apache-2.0
"""How many rows a draft forward is worth filling, from what forwards of this many rows take on this device.

Most devices take rows for nothing up to some number and then much longer: up to the cliff all rows are filled, and
beyond it those that pay. Who is told no prices fills them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

CLIFF = 1.3
"""This many times as long with one row more: below that, what is measured is mostly chance."""
RETRIED = 64
"""Once in this many forwards another number of rows is tried: what they cost may have changed."""
LOOKED_AT = 16
"""Once in this many forwards the prices are looked at."""


class RowPrices:
    """price_s: seconds of a forward over n rows, None if unknown. tried: it was told before any forward, so
    that none need be spent on trying. most: rows that a forward may have.
    """

    def __init__(self, most: int) -> None:
        self.price_s: Callable[[int], float | None] = lambda rows: None
        self.tried = False
        self.most = most
        self._tries = [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]
        self._forwards = 0
        self._prices: dict[int, float] = {}

    def beside(self, values: Sequence[float]) -> int:
        """How many rows go along with one that has to be fed anyway: those that save more time later than they take.

        values: what each row is likely to be worth, in forwards that are saved, as they would be filled.
        """
        if tried := self._next():
            return tried - 1
        if len(self._prices) < 2:
            return self.most - 1
        alone_s = self._prices[1]
        return max(self._prices, key=lambda rows: sum(values[: rows - 1]) * alone_s - self._prices[rows]) - 1

    def ahead(self, values: Sequence[float]) -> int:
        """How many rows a forward has that no thread waits for: as many as bring most in its time."""
        if not self.most:
            return 0
        if tried := self._next():
            return tried
        if len(self._prices) < 2:
            return self.most
        return max(self._prices, key=lambda rows: sum(values[:rows]) / self._prices[rows])

    def _next(self) -> int:
        """One forward more; how many rows it is to try, 0: as many as pay."""
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
        """Remember one row, those that one more would make much dearer, and all there may be; False without prices."""
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

# SPDX-License-Identifier: Apache-2.0
"""How many nodes of a token tree are worth sending, from what verifications of this many rows take.

Every node is a row of the target's forward. Where rows are free all nodes go; where they cost, the next likeliest one
goes along only as long as it brings more tokens than come in the time that its row takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

NOISE = 0.05
"""Rows that take so little longer, as a share, are free: less than that is mostly chance."""


def nodes_worth_sending(
    chances: Sequence[float],
    price_s: Callable[[int], float | None],
    rest_s: float,
    rate: float | None = None,
) -> int:
    """How many of a tree's nodes, likeliest first, at least 1; all of them where no caller knows what rows take.

    chances: of each to be accepted. price_s: seconds of a verification of this many rows; one row is the answer's own.
    rest_s: of a round without its verification. rate: tokens a second that come on average; None: no caller knows, then
    what this draft alone would bring decides.
    """
    least, all_rows = price_s(2), price_s(len(chances) + 1)
    if least is None or all_rows is None or all_rows <= (1.0 + NOISE) * least:
        return len(chances)
    best, most = len(chances), float("-inf")
    promise = 0.0
    for nodes, chance in enumerate(chances, start=1):
        promise += chance
        price = price_s(nodes + 1)
        time_s = max(rest_s + (least if price is None else price), 1e-9)
        worth = (1.0 + promise) / time_s if rate is None else promise - rate * time_s
        if worth >= most:
            best, most = nodes, worth
    return best

# SPDX-License-Identifier: Apache-2.0
"""How many nodes of a token tree are worth sending, from the time of a verification by its rows.

Each node is a row of the target's forward pass. If rows are free, all nodes are sent. If they cost time, the next
likeliest node is sent only while it gains more tokens than arrive on average in the time of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

NOISE = 0.05
"""Rows that lengthen a verification by less than this share count as free; smaller differences are mostly noise."""


def nodes_worth_sending(
    chances: Sequence[float],
    price_s: Callable[[int], float | None],
    rest_s: float,
    rate: float | None = None,
) -> int:
    """How many of a tree's nodes, likeliest first, to send.

    Args:
        chances: Acceptance chance of each node, likeliest first.
        price_s: Seconds of a verification over n rows, one of which is the answer's own; None if unknown.
        rest_s: Seconds of a round without its verification.
        rate: Average tokens per second; None: maximise the tokens per second of this draft alone.

    Returns:
        At least 1; all nodes if prices are unknown.
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

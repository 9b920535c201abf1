# SPDX-License-Identifier: Apache-2.0
"""Acceptance of token-tree nodes, by likelihood rank and depth.

This predicts the gain of a tree of any size, because a small tree consists of the likeliest nodes of a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

EXPECTED_AS = 4
"""Weight of a draft of which only the draft model's chances are known, in compared drafts."""
_FORGET = 0.98
_DEPTHS = 8
_NODES = 32


class TreeAcceptance:
    """Counts of trees compared with the target's tokens. drafts: how many."""

    def __init__(self) -> None:
        self.drafts = 0
        self._brought: list[list[float]] | None = None
        self._tried = [[0.0] * _NODES for _ in range(_DEPTHS)]
        self._kept = [[0.0] * _NODES for _ in range(_DEPTHS)]

    def add(self, ranks: Sequence[int], depths: Sequence[int], path: Sequence[int]) -> None:
        """Count one tree. ranks, depths: of each node; rank 0 is the likeliest. path: the nodes that were right."""
        if not ranks:
            return
        self.drafts += 1
        self._brought = None
        right = {ranks[node]: depths[node] for node in path}
        deepest = min(max(depths) + 1, _DEPTHS)
        for rank in ranks:
            if rank >= _NODES:
                continue
            for depth in range(deepest):
                self._tried[depth][rank] = _FORGET * self._tried[depth][rank] + 1.0
                self._kept[depth][rank] = _FORGET * self._kept[depth][rank] + (right.get(rank) == depth)

    def expect(self, ranks: Sequence[int], depths: Sequence[int], chances: Sequence[float]) -> None:
        """Count one tree that is not compared, by the chance of each node to be right."""
        self.drafts += EXPECTED_AS
        self._brought = None
        deepest = min(max(depths) + 1, _DEPTHS)
        for rank, own, chance in zip(ranks, depths, chances, strict=True):
            for depth in range(deepest if rank < _NODES else 0):
                self._tried[depth][rank] += EXPECTED_AS
                self._kept[depth][rank] += EXPECTED_AS * chance * (depth == own)

    def expected(self, levels: int, nodes: int) -> float:
        """Expected tokens per round with the likeliest nodes of a tree, the target's own token included.

        levels: 1 to 8. nodes: 1 to 32. The gain of levels without data is extrapolated geometrically from the two
        levels before.
        """
        if self._brought is None:
            self._brought = self._table()
        return 1.0 + self._brought[levels - 1][nodes - 1]

    def _table(self) -> list[list[float]]:
        """Expected accepted nodes, by levels and nodes."""
        levels: list[list[float]] = []
        column: list[float] = []
        for depth, (tried, kept) in enumerate(zip(self._tried, self._kept, strict=True)):
            before, column = column, []
            if depth > 1 and not any(tried):
                above = self._level(levels, depth - 2)
                fading = min(1.0, before[-1] / above) if above > 0.0 else 0.0
                column = [fading * value for value in before]
            else:  # the prior is one wrong tree, because a few trees would be too optimistic
                column = list(
                    accumulate(right / (all_ + 1.0) for right, all_ in zip(kept, tried, strict=True))
                )
            levels.append([sum(pair) for pair in zip(levels[-1], column, strict=True)] if levels else column)
        return levels

    def _level(self, levels: Sequence[Sequence[float]], depth: int) -> float:
        """Expected accepted nodes in one level of full trees."""
        return levels[depth][-1] - (levels[depth - 1][-1] if depth else 0.0)

# SPDX-License-Identifier: Apache-2.0
"""Which nodes of token trees turn out right, by their place in the order of likelihood and by their depth.

From that follows what a tree of any size would have brought: the likeliest nodes of a large tree are the small tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

EXPECTED_AS = 4
"""A draft of which only the draft model's own chances are known counts as so many that were compared."""
_FORGET = 0.98
_DEPTHS = 8
_NODES = 32


class TreeAcceptance:
    """Counts of trees that were compared with what the target said. drafts: how many these were."""

    def __init__(self) -> None:
        self.drafts = 0
        self._brought: list[list[float]] | None = None
        self._tried = [[0.0] * _NODES for _ in range(_DEPTHS)]
        self._kept = [[0.0] * _NODES for _ in range(_DEPTHS)]

    def add(self, ranks: Sequence[int], depths: Sequence[int], path: Sequence[int]) -> None:
        """One tree. ranks, depths: of each node; rank 0 is the likeliest. path: the nodes that were right."""
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
        """What is held of one tree that nothing was compared with: each node's chance to be right."""
        self.drafts += EXPECTED_AS
        self._brought = None
        deepest = min(max(depths) + 1, _DEPTHS)
        for rank, own, chance in zip(ranks, depths, chances, strict=True):
            for depth in range(deepest if rank < _NODES else 0):
                self._tried[depth][rank] += EXPECTED_AS
                self._kept[depth][rank] += EXPECTED_AS * chance * (depth == own)

    def expected(self, levels: int, nodes: int) -> float:
        """Tokens of a round with this many of a tree's likeliest nodes, this many levels deep, the target's own
        counted.

        levels: 1 to 8. nodes: 1 to 32. Levels that no tree had yet are worth so much less than the one before as that
        is than its own.
        """
        if self._brought is None:
            self._brought = self._table()
        return 1.0 + self._brought[levels - 1][nodes - 1]

    def _table(self) -> list[list[float]]:
        """By levels and nodes: how many of the nodes are accepted."""
        levels: list[list[float]] = []
        column: list[float] = []
        for depth, (tried, kept) in enumerate(zip(self._tried, self._kept, strict=True)):
            before, column = column, []
            if depth > 1 and not any(tried):
                above = self._level(levels, depth - 2)
                fading = min(1.0, before[-1] / above) if above > 0.0 else 0.0
                column = [fading * value for value in before]
            else:  # one more tree that was wrong: few of them promise too much
                column = list(
                    accumulate(right / (all_ + 1.0) for right, all_ in zip(kept, tried, strict=True))
                )
            levels.append([sum(pair) for pair in zip(levels[-1], column, strict=True)] if levels else column)
        return levels

    def _level(self, levels: Sequence[Sequence[float]], depth: int) -> float:
        """What one level of whole trees brings."""
        return levels[depth][-1] - (levels[depth - 1][-1] if depth else 0.0)

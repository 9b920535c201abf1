# SPDX-License-Identifier: Apache-2.0
"""Growing a token tree with a draft model: best nodes first, pruned to a budget (SpecExec, Sequoia, SpecEdge).

Nodes are ranked by the cumulative log-probability of their path. Those of one level that are worth expanding go
through the model in one pass; what is sent is the best `budget` nodes of all, parents before children.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.draft import ROOT, Draft, TokenTree
from specdec.drafting.drafter import read_both


class TreeGrowth:
    """What grows below one root, level by level. Knows no model: scores come in.

    scores: log-probability of a node's whole path, one a node of `tree`. fed: a node's number in the model's own tree,
    once it went through the model. root_fed: the same of the root. newest: nodes of the last level.
    """

    def __init__(self, stop_ids: frozenset[int], root_fed: int = ROOT) -> None:
        """stop_ids: what ends an answer never grows."""
        self.stop_ids = stop_ids
        self.root_fed = root_fed
        self.tree = TokenTree()
        self.scores: list[float] = []
        self.fed: list[int | None] = []
        self.newest: list[int] = []
        self.levels = 0

    def frontier(self, beam: int) -> list[int]:
        """The nodes of the newest level that are worth expanding, best first; empty where nothing can grow."""
        alive = [node for node in self.newest if self.tree.ids[node] not in self.stop_ids]
        return sorted(alive, key=lambda node: -self.scores[node])[:beam]

    def parent_fed(self, node: int) -> int:
        """Number in the model's tree of a node's parent, which went through the model."""
        parent = self.tree.parents[node]
        number = self.root_fed if parent == ROOT else self.fed[parent]
        assert number is not None
        return number

    def plant(self, scores: Tensor, width: int) -> None:
        """The first level: the `width` likeliest of the log-scores [vocab] of what may follow the root."""
        self._add(scores[None], [ROOT], width)

    def expand(self, frontier: Sequence[int], first_fed: int, scores: Tensor, width: int) -> None:
        """The frontier went through the model: as nodes first_fed, +1, ..., log-scores [len, vocab] behind them."""
        for offset, node in enumerate(frontier):
            self.fed[node] = first_fed + offset
        self._add(scores, frontier, width)

    def descend(self, token: int) -> TreeGrowth | None:
        """What grew below the root's child `token`, with that child as its root; None where nothing did."""
        top = self.tree.child(ROOT, token)
        fed = None if top is None else self.fed[top]
        if top is None or fed is None:
            return None
        kept = self.tree.below(top)
        grown = TreeGrowth(self.stop_ids, fed)
        grown.tree = self.tree.select(kept, top)
        grown.scores = [self.scores[node] - self.scores[top] for node in kept]
        grown.fed = [self.fed[node] for node in kept]
        # Below this child the tree may be less deep than elsewhere: it goes on growing where it is deepest.
        grown.levels = max(grown.tree.depths, default=-1) + 1
        grown.newest = [node for node, depth in enumerate(grown.tree.depths) if depth == grown.levels - 1]
        return grown

    def _add(self, scores: Tensor, parents: Sequence[int], width: int) -> None:
        first = len(self.tree)
        best, tokens = torch.topk(scores, min(width, scores.shape[-1]), dim=-1)
        for parent, row, ids in zip(parents, *read_both(best, tokens), strict=True):
            path_score = 0.0 if parent == ROOT else self.scores[parent]
            for score, token in zip(row, ids, strict=True):
                if score > float("-inf"):
                    self.tree.append(token, parent)
                    self.scores.append(path_score + score)
                    self.fed.append(None)
        self.newest = list(range(first, len(self.tree)))
        self.levels += 1


def prune(
    base: int, tree: TokenTree, scores: Sequence[float], budget: int, room: int
) -> tuple[Draft, tuple[int, ...]]:
    """The best `budget` nodes at depths below `room` as a draft, and the ids on the way to its likeliest leaf."""
    kept = tree.prune(scores, budget, room)
    chosen = tree.select(kept)
    inner = set(chosen.parents)
    leaves = [node for node in range(len(chosen)) if node not in inner]
    leaf = max(leaves, key=lambda node: scores[kept[node]], default=ROOT)
    guess = tuple(chosen.ids[node] for node in chosen.path(leaf))
    return Draft(base, tuple(chosen.ids), tuple(chosen.parents)), guess

"""Growing a token tree with a draft model: best candidates first, pruned to a budget (SpecExec, Sequoia,
paper 001).

Candidates are ranked by the cumulative log-probability of their path. Those of one level that are worth
expanding go through the model in one pass; what is sent is the best `budget` nodes of all, parents before
children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.drafting.draft import ROOT, Draft


@dataclass(frozen=True)
class TreeSize:
    """budget: nodes a draft may have. depth: draft forwards, and the longest path."""

    budget: int
    depth: int

    @property
    def beam(self) -> int:
        """How many nodes of a level are expanded, and how many children each may get."""
        return max(2, -(-self.budget // self.depth))


@dataclass(frozen=True)
class Candidate:
    """A possible node. parent: index of an earlier candidate or ROOT; score: log-probability of its whole
    path.
    """

    token: int
    parent: int
    depth: int
    score: float


Expand = Callable[[Sequence[int]], Tensor]
"""Candidate indices of one level -> log-scores [len, vocab] of what follows each."""


def grow(
    candidates: list[Candidate], root_scores: Tensor, size: TreeSize, stop_ids: frozenset[int], expand: Expand
) -> None:
    """Append to `candidates` (empty at first) all that size.depth levels bring, parents before children.

    root_scores float [vocab]: log-scores after the answer. A candidate that ends an answer (stop_ids) is
    never expanded. expand is called once a level, depth - 1 times.
    """
    _add_children(candidates, root_scores[None], [ROOT], size.beam)
    level = list(range(len(candidates)))
    for _ in range(size.depth - 1):
        alive = [index for index in level if candidates[index].token not in stop_ids]
        frontier = sorted(alive, key=lambda index: -candidates[index].score)[: size.beam]
        if not frontier:
            break
        first = len(candidates)
        _add_children(candidates, expand(frontier), frontier, size.beam)
        level = list(range(first, len(candidates)))


def prune(base: int, candidates: Sequence[Candidate], budget: int) -> Draft:
    """The best `budget` candidates as a draft. Ancestors score at least as well, so they are always among
    them.
    """
    order = sorted(
        range(len(candidates)), key=lambda index: (-candidates[index].score, candidates[index].depth)
    )
    # A parent is found before its child, so ascending order is what puts parents first (TRAPS 7).
    kept = sorted(order[:budget])
    numbers = {ROOT: ROOT, **{index: number for number, index in enumerate(kept)}}
    ids = tuple(candidates[index].token for index in kept)
    return Draft(base, ids, tuple(numbers[candidates[index].parent] for index in kept))


def _add_children(candidates: list[Candidate], scores: Tensor, parents: Sequence[int], width: int) -> None:
    best, tokens = torch.topk(scores, min(width, scores.shape[-1]), dim=-1)
    for parent, row, ids in zip(parents, best.tolist(), tokens.tolist(), strict=True):
        path_score = 0.0 if parent == ROOT else candidates[parent].score
        depth = 0 if parent == ROOT else candidates[parent].depth + 1
        for score, token in zip(row, ids, strict=True):
            if score > float("-inf"):
                candidates.append(Candidate(token, parent, depth, path_score + score))

"""Growing a token tree with a draft model: best candidates first, pruned to a budget (SpecExec, Sequoia,
paper 001).

Candidates are ranked by the cumulative log-probability of their path. Those of one level that are worth
expanding go through the model in one pass; what is sent is the best `budget` nodes of all, parents before
children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from specdec.drafting.draft import ROOT, Draft


@dataclass(frozen=True)
class Candidate:
    """A possible node. parent: index of an earlier candidate or ROOT; score: log-probability of its whole
    path. node: its number in the model's own tree, once it went through the model.
    """

    token: int
    parent: int
    depth: int
    score: float
    node: int | None = None


@dataclass
class TreeGrowth:
    """The candidates that grow below one root, level by level. Knows no model: scores come in.

    stop_ids: what ends an answer never grows. root_node: the root's number in the model's tree.
    newest: candidates of the last level.
    """

    stop_ids: frozenset[int]
    root_node: int = ROOT
    candidates: list[Candidate] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    levels: int = 0

    def frontier(self, beam: int) -> list[int]:
        """The candidates of the newest level that are worth expanding, best first; empty where nothing can grow."""
        alive = [index for index in self.newest if self.candidates[index].token not in self.stop_ids]
        return sorted(alive, key=lambda index: -self.candidates[index].score)[:beam]

    def parent_node(self, index: int) -> int:
        """Number in the model's tree of a candidate's parent, which went through the model."""
        parent = self.candidates[index].parent
        node = self.root_node if parent == ROOT else self.candidates[parent].node
        assert node is not None
        return node

    def plant(self, scores: Tensor, width: int) -> None:
        """The first level: the `width` likeliest of the log-scores [vocab] of what may follow the root."""
        self._add(scores[None], [ROOT], width)

    def expand(self, frontier: Sequence[int], first_node: int, scores: Tensor, width: int) -> None:
        """The frontier went through the model: as nodes first_node, +1, ..., log-scores [len, vocab] behind them."""
        for offset, index in enumerate(frontier):
            self.candidates[index] = replace(self.candidates[index], node=first_node + offset)
        self._add(scores, frontier, width)

    def descend(self, token: int) -> TreeGrowth | None:
        """What grew below the root's child `token`, with that child as its root; None where nothing did."""
        children = (i for i, one in enumerate(self.candidates) if one.parent == ROOT and one.token == token)
        top = next(children, None)
        node = None if top is None else self.candidates[top].node
        if top is None or node is None:
            return None
        kept: list[Candidate] = []
        numbers = {top: ROOT}
        for index, one in enumerate(self.candidates):
            if one.parent in numbers:
                numbers[index] = len(kept)
                score = one.score - self.candidates[top].score
                kept.append(replace(one, parent=numbers[one.parent], depth=one.depth - 1, score=score))
        # Below this child the tree may be less deep than elsewhere: it goes on growing where it is deepest.
        levels = max((one.depth for one in kept), default=-1) + 1
        newest = [index for index, one in enumerate(kept) if one.depth == levels - 1]
        return TreeGrowth(self.stop_ids, node, kept, newest, levels)

    def _add(self, scores: Tensor, parents: Sequence[int], width: int) -> None:
        first = len(self.candidates)
        best, tokens = torch.topk(scores, min(width, scores.shape[-1]), dim=-1)
        for parent, row, ids in zip(parents, best.tolist(), tokens.tolist(), strict=True):
            path_score = 0.0 if parent == ROOT else self.candidates[parent].score
            depth = 0 if parent == ROOT else self.candidates[parent].depth + 1
            for score, token in zip(row, ids, strict=True):
                if score > float("-inf"):
                    self.candidates.append(Candidate(token, parent, depth, path_score + score))
        self.newest = list(range(first, len(self.candidates)))
        self.levels += 1


def prune(
    base: int, candidates: Sequence[Candidate], budget: int, room: int
) -> tuple[Draft, tuple[int, ...]]:
    """The best `budget` candidates at depths below `room` as a draft, and the ids on the way to its likeliest leaf.

    Ancestors score at least as well as what is below them, so they are always among the best.
    """
    order = sorted(
        (index for index, one in enumerate(candidates) if one.depth < room),
        key=lambda index: (-candidates[index].score, candidates[index].depth),
    )
    # A parent is found before its child, so ascending order is what puts parents first (TRAPS 7).
    kept = sorted(order[:budget])
    numbers = {ROOT: ROOT, **{index: number for number, index in enumerate(kept)}}
    ids = tuple(candidates[index].token for index in kept)
    draft = Draft(base, ids, tuple(numbers[candidates[index].parent] for index in kept))
    inner = {candidates[index].parent for index in kept}
    leaves = [index for index in kept if index not in inner]
    return draft, _path(candidates, max(leaves, key=lambda index: candidates[index].score, default=ROOT))


def _path(candidates: Sequence[Candidate], index: int) -> tuple[int, ...]:
    ids: list[int] = []
    while index != ROOT:
        ids.append(candidates[index].token)
        index = candidates[index].parent
    return tuple(reversed(ids))

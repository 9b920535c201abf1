# SPDX-License-Identifier: Apache-2.0
"""Drafts a token tree, one level per step, and grows it below its likeliest leaf while waiting for the verdict.

Best nodes first, pruned to a budget (SpecExec, Sequoia, SpecEdge): nodes are ranked by the cumulative log-probability
of their path. The nodes of one level that are worth expanding are fed in one forward pass. The best `budget` nodes of
all levels are sent, parents before children. Proactive drafting as in SpecEdge: the growth below the likeliest leaf is
kept if the verdict ends at that leaf and its next token is in that growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.draft import ROOT, Draft, TokenTree, TreeSize
from specdec.drafting.drafter import DraftModel, Pays, Proposal, read_both
from specdec.models import Prompt


class TreeDrafter:
    """Grows one tree at a time, below a verified or assumed answer.

    pays: decides how many nodes are worth sending; None: the full budget.
    """

    def __init__(self, model: DraftModel, budget: int) -> None:
        self._model = model
        self._budget = budget
        self.pays: Pays | None = None
        self._root: list[int] = []
        self._growth: TreeGrowth | None = None
        self._nodes = 0

    def prefill(self, prompt: Prompt) -> None:
        """Prefill the prompt. Raises ModelError if the draft model cannot take it."""
        self._model.prefill(prompt)
        self._growth = None

    def drafted(self, answer: Sequence[int]) -> int:
        """How many levels exist below `answer`; the tree's root is moved there if it is one token behind."""
        if self._growth is None:
            return 0
        if self._root == list(answer):
            return self._growth.levels
        if self._root == list(answer[:-1]):
            below = self._growth.descend(answer[-1])
            if below is not None:
                self._growth, self._root = below, list(answer)
                return below.levels
        return 0

    @torch.inference_mode()
    def step(self, answer: Sequence[int], size: int) -> bool:
        """Grow one more level, up to `size` levels; False if the tree is that deep or cannot grow."""
        levels = self.drafted(answer)
        beam = TreeSize(self._budget, size).beam
        room = self._model.room(len(answer)) - 1
        if levels >= size or (self._nodes if levels else 0) + beam > room:
            return False
        if levels and beam > self._model.branches_left:
            return False
        if not levels:
            return self._plant(list(answer), beam)
        assert self._growth is not None
        frontier = self._growth.frontier(beam)
        if not frontier:
            return False
        tree = self._growth.tree
        tokens = [tree.ids[node] for node in frontier]
        rows = self._model.cursor.grow_tree(tokens, [self._growth.parent_fed(node) for node in frontier])
        depth = tree.depths[frontier[0]]
        self._growth.expand(frontier, self._nodes, self._scores(rows, len(answer) + depth + 1), beam)
        self._nodes += len(frontier)
        return True

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """The best nodes below `answer`, at depths below `room`."""
        if not self.drafted(answer) or self._growth is None:
            return Proposal(Draft(len(answer), ()), ())
        tree, scores, budget, promise = self._growth.tree, self._growth.scores, self._budget, 0.0
        if self.pays is not None:
            inside = [score for score, depth in zip(scores, tree.depths, strict=True) if depth < room]
            chances = [math.exp(score) for score in sorted(inside, reverse=True)[:budget]]
            budget = self.pays(chances) if chances else budget
            promise = sum(chances[:budget])
        draft, guess = prune(len(answer), tree, scores, budget, room)
        return Proposal(draft, guess, promise=promise)

    def _plant(self, answer: list[int], beam: int) -> bool:
        if answer and answer[-1] in self._model.eos_ids:
            return False
        scores = self._scores(self._model.cursor.tree_rows(answer, (), ()), len(answer))
        self._growth = TreeGrowth(self._model.eos_ids)
        self._growth.plant(scores[-1], beam)
        self._root, self._nodes = answer, 0
        return True

    def _scores(self, rows: Tensor, position: int) -> Tensor:
        positions = torch.full((rows.shape[0],), position, device=rows.device)
        return self._model.chooser.log_scores(self._model.without_placeholders(rows), positions)


class TreeGrowth:
    """A tree that grows below one root, level by level. Independent of models: scores are passed in.

    scores: log-probability of the whole path to each node of `tree`. fed: each node's number in the model session's
    tree, once fed. root_fed: the root's number there. newest: nodes of the last level.
    """

    def __init__(self, stop_ids: frozenset[int], root_fed: int = ROOT) -> None:
        """stop_ids: tokens that end an answer; their nodes are never expanded."""
        self.stop_ids = stop_ids
        self.root_fed = root_fed
        self.tree = TokenTree()
        self.scores: list[float] = []
        self.fed: list[int | None] = []
        self.newest: list[int] = []
        self.levels = 0

    def frontier(self, beam: int) -> list[int]:
        """The nodes of the newest level to expand, best first; empty if nothing can grow."""
        alive = [node for node in self.newest if self.tree.ids[node] not in self.stop_ids]
        return sorted(alive, key=lambda node: -self.scores[node])[:beam]

    def parent_fed(self, node: int) -> int:
        """Number of a node's parent in the model session's tree; the parent must have been fed."""
        parent = self.tree.parents[node]
        number = self.root_fed if parent == ROOT else self.fed[parent]
        assert number is not None
        return number

    def plant(self, scores: Tensor, width: int) -> None:
        """Create the first level: the `width` likeliest tokens after the root. scores: log-probabilities [vocab]."""
        self._add(scores[None], [ROOT], width)

    def expand(self, frontier: Sequence[int], first_fed: int, scores: Tensor, width: int) -> None:
        """Create the next level after the frontier was fed. first_fed: number of its first node in the model session's
        tree. scores: log-probabilities [len(frontier), vocab] after each node.
        """
        for offset, node in enumerate(frontier):
            self.fed[node] = first_fed + offset
        self._add(scores, frontier, width)

    def descend(self, token: int) -> TreeGrowth | None:
        """The subtree below the root's child `token`, with that child as its root; None if that child was not fed."""
        top = self.tree.child(ROOT, token)
        fed = None if top is None else self.fed[top]
        if top is None or fed is None:
            return None
        kept = self.tree.below(top)
        grown = TreeGrowth(self.stop_ids, fed)
        grown.tree = self.tree.select(kept, top)
        grown.scores = [self.scores[node] - self.scores[top] for node in kept]
        grown.fed = [self.fed[node] for node in kept]
        # The subtree may be shallower than the tree was. It continues to grow at its own deepest level.
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
    """The best `budget` nodes at depths below `room` as a draft, and the ids on the path to its likeliest leaf."""
    kept = tree.prune(scores, budget, room)
    chosen = tree.select(kept)
    inner = set(chosen.parents)
    leaves = [node for node in range(len(chosen)) if node not in inner]
    leaf = max(leaves, key=lambda node: scores[kept[node]], default=ROOT)
    guess = tuple(chosen.ids[node] for node in chosen.path(leaf))
    return Draft(base, tuple(chosen.ids), tuple(chosen.parents)), guess

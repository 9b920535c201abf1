# SPDX-License-Identifier: Apache-2.0
"""Drafts a token tree, one level per step, and grows it below its likeliest leaf while waiting for the verdict.

Proactive drafting as in SpecEdge: the growth below the likeliest leaf is kept if the verdict ends at that leaf and its
next token is in that growth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.draft import Draft, TreeSize
from specdec.drafting.drafter import DraftModel, Pays, Proposal
from specdec.drafting.tree import TreeGrowth, prune
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

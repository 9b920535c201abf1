# SPDX-License-Identifier: Apache-2.0
"""Drafts the next draft AND prepares drafts for possible verdicts on it, several of them in each forward pass.

One tree holds all of them (specdec.drafting.outcomes). The rows of a forward pass are the next token of the draft
itself and of the branches after the likeliest outcomes; all share the prefix in the KV cache. The branch that the
verdict names becomes the beginning of the next draft. Nothing is drafted or fed twice.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.draft import ROOT, Draft, TreeSize, promise_of
from specdec.drafting.drafter import DraftModel, Pays, Proposal, read_both
from specdec.drafting.length import Prospects
from specdec.drafting.ngram import NgramLookup
from specdec.drafting.outcomes import Order, Outcome, OutcomeTree
from specdec.drafting.row_prices import RowPrices
from specdec.models import Prompt

_LONGEST = 1 << 20
_KEPT_BACK = 8
_LOOKED_AT = 4
"""Candidates to consider per row of a forward pass: some take two rows, and may not fit."""


@dataclass(frozen=True)
class PendingNode:
    """A candidate node for the next forward pass, in the tree or not yet. value: chance that computing it is useful."""

    value: float
    parent: int
    token: int
    logp: float


class OutcomeDrafter:
    """Grows one tree at a time, below a verified answer."""

    def __init__(
        self,
        model: DraftModel,
        rows: int,
        order: Order = "priority",
        guesses: bool = True,
        tree: TreeSize | None = None,
    ) -> None:
        """Create a drafter.

        Attributes: `prices` holds the row costs, set by the code that measures them. `pays` decides how many nodes of a
        tree to send (None: its full budget). `rows_fed` counts the rows of the last forward pass (0: not counted). With
        `tells_chances`, a chain's chances are part of its proposal.

        Args:
            model: The draft model.
            rows: Most possible verdicts per forward pass; 0: prepare for none.
            order: Which verdicts come first.
            guesses: Also prepare for verdicts that no hint names.
            tree: Draft trees of this size; None: chains.
        """
        self._model = model
        self.tells_chances = False
        self.rows = rows
        self.order = order
        self.guesses = guesses
        self.shape = tree
        self.prices = RowPrices(rows)
        self.pays: Pays | None = None
        self.rows_fed = 0
        self._tree = OutcomeTree(self._model.eos_ids)
        self._root: list[int] | None = None
        self._fed = 0

    def forget(self) -> None:
        """Drop everything drafted: another drafter has used the draft model."""
        self._root = None
        self._tree.recall()

    def prefill(self, prompt: Prompt) -> None:
        """Prefill the prompt. Raises ModelError if the draft model cannot take it."""
        self._model.prefill(prompt)
        self._tree.ngrams = NgramLookup(prompt.ids, self._model.never_drafted)
        self._root = None

    def drafted(self, answer: Sequence[int]) -> int:
        """Length of the likeliest known chain after `answer`. The tree's root is moved there if the tree contains it.

        Moving the root drops what was prepared for other verdicts, so `answer` must be verified.
        """
        return len(self._tree.line(ROOT, _LONGEST)) if self._reach(answer) else 0

    @torch.inference_mode()
    def step(self, answer: Sequence[int], size: int) -> bool:
        """One forward pass for the draft after `answer`; spare rows prepare for its verdicts. False if the draft ends.
        """
        if not self._reach(answer):
            return self._plant(list(answer))
        if self._model.branches_left < 1:  # the tree has grown for long without being pruned
            return self._plant(list(answer))
        tree = self._tree
        tip = tree.tip(ROOT, size)
        if tip is None:
            return False
        batch = [tip]
        if self.shape is not None:
            best = sorted(self._below_in_tree(ROOT, size, 1.0), key=lambda work: -work.value)
            batch += self._choose(best, min(self.shape.beam - 1, self._spare), batch)
        elif self.guesses and self.rows:
            tree.sent = self._line_nodes(size)
            works = self._works(size)
            batch += self._choose(works, min(self.prices.beside(_values(works)), self._spare), batch)
        return self._feed(batch)

    @torch.inference_mode()
    def step_ahead(self, size: int) -> bool:
        """One forward pass for verdicts on the draft in flight, each draft up to depth `size`; False if all is done."""
        if self._root is None:
            return False
        if not self._spare:
            return False
        works = self._works(size)
        if self.shape is not None:
            return self._feed(self._choose(works, min(max(self.rows, self.shape.beam), self._spare), []))
        rows = self.prices.ahead(_values(works))
        return self._feed(self._choose(works, min(max(rows, self._least(works)), self._spare) if rows else 0, []))

    @property
    def _spare(self) -> int:
        """Branches available for speculative work; some are reserved for the draft itself."""
        return max(0, self._model.branches_left - _KEPT_BACK)

    def _least(self, works: Sequence[PendingNode]) -> int:
        """Rows that the first candidate takes: one more if its parent must be computed first."""
        return 2 if works and not self._tree.is_known(works[0].parent) else 1

    def hint(self, last: int, token: int, confidence: float, layer: int) -> None:
        """Take an early exit's hint about the draft in flight."""
        if token < self._model.vocab_size:
            self._tree.hint(last, token, confidence, layer)

    def chances(self, answer: Sequence[int]) -> list[float]:
        """The draft model's chance of each token in the likeliest chain after `answer`, if all before it are right."""
        found: list[float] = []
        node = ROOT
        for token in self._tree.line(ROOT, _LONGEST) if self._reach(answer) else ():
            found.append(math.exp(self._tree.best(node)[0][1]))
            child = self._tree.tokens.child(node, token)
            if child is None:
                break
            node = child
        return found

    def prospects(self, answer: Sequence[int], size: int, room: int) -> Prospects:
        """The expected gain of the present draft after `answer`, and of its next forward pass."""
        if not self._reach(answer):
            return Prospects(0.0, 1.0)
        tree = self._tree
        if self.shape is not None:
            promise = sum(math.exp(-score) for score, _, _ in self._likeliest(self.shape.budget, room))
            frontier = sorted((work.value for work in self._below_in_tree(ROOT, size, 1.0)), reverse=True)
            return Prospects(promise, sum(frontier[: self.shape.beam]))
        chances = self.chances(answer)[: min(size, room)]
        return Prospects(promise_of(chances), 0.0 if tree.tip(ROOT, size) is None else math.prod(chances))

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """The draft after `answer`, which counts as in flight from now on."""
        self._tree.recall()
        if not self._reach(answer):
            self._root = None
            return Proposal(Draft(len(answer), ()), ())
        tree = self._tree
        if self.shape is None:
            tree.sent = nodes = self._line_nodes(min(size, room))
            ids = tuple(tree.tokens.ids[node] for node in nodes)
            told = tuple(self.chances(answer)[: len(ids)]) if self.tells_chances else ()
            return Proposal(Draft(len(answer), ids), ids, chances=told)
        kept = self._likeliest(self.shape.budget, room)
        promise = 0.0
        if self.pays is not None and kept:
            chances = [math.exp(-score) for score, _, _ in kept]
            kept = kept[: self.pays(chances)]
            promise = sum(chances[: len(kept)])
        places = sorted(range(len(kept)), key=lambda place: kept[place][1])  # parents first
        works = [kept[place][2] for place in places]  # candidates are added to the tree
        tree.sent = [tree.grow(work.parent, work.token, work.logp) for work in works]
        sent = tree.tokens.select(tree.sent)
        draft = Draft(len(answer), tuple(sent.ids), tuple(sent.parents))
        own = tuple(math.exp(-kept[place][0]) for place in places)
        guess = tuple(tree.line(ROOT, room))
        return Proposal(draft, guess, ranks=tuple(places), promise=promise, chances=own)

    def _reach(self, answer: Sequence[int]) -> bool:
        """Move the root to the end of `answer` if the tree contains it; returns whether the root is there now."""
        root = self._root
        if root is None or list(answer[: len(root)]) != root:
            return False
        if len(root) == len(answer):
            return True
        top = self._tree.walk(answer[len(root) :])
        if top is None or not self._tree.is_fed(top):
            return False
        moved = self._model.cursor.reroot(answer)
        if moved is None:
            return False
        self._tree.descend(top, moved)
        self._tree.ngrams.follow(answer)
        self._root, self._fed = list(answer), len(moved)
        return True

    def _plant(self, answer: list[int]) -> bool:
        self._root = None
        if (answer and answer[-1] in self._model.eos_ids) or self._model.room(len(answer)) < 1:
            return False
        rows = self._model.cursor.tree_rows(answer, (), ())
        self.rows_fed = 0  # the cursor feeds pending tokens, whose number is not reported
        self._tree.ngrams.follow(answer)
        best = self._best(rows[-1:], [len(answer)])[0]
        self._tree.plant(best if self.shape is None else self._tree.with_repeated(ROOT, best))
        self._root, self._fed = answer, 0
        self._force(ROOT)
        return True

    def _line_nodes(self, size: int) -> list[int]:
        """The nodes of the likeliest chain, as far as it is known; missing ones are added."""
        nodes: list[int] = []
        node = ROOT
        while len(nodes) < size and self._tree.best(node):
            token, logp = self._tree.best(node)[0]
            node = self._tree.grow(node, token, logp)
            nodes.append(node)
            if token in self._model.eos_ids:
                break
        return nodes

    def _likeliest(self, budget: int, room: int) -> list[tuple[float, int, PendingNode]]:
        """The likeliest nodes at depths below `room`, in the tree or not: (-log-probability of the path, depth, node).
        """
        found: list[tuple[float, int, PendingNode]] = []  # -score, depth, node
        waiting = [(ROOT, 0.0, 0)]
        while waiting:
            node, score, depth = waiting.pop()
            if depth >= room:
                continue
            for token, logp in self._tree.best(node)[:budget]:
                found.append((-score - logp, depth, PendingNode(0.0, node, token, logp)))
                child = self._tree.tokens.child(node, token)
                if child is not None and self._tree.is_known(child):
                    waiting.append((child, score + logp, depth + 1))
        # A parent scores at least as well as its child, so it is always selected first; depth breaks ties.
        found.sort(key=lambda one: one[:2])
        return found[:budget]

    def _choose(self, works: Iterable[PendingNode], rows: int, batch: Sequence[int]) -> list[int]:
        """The nodes to feed for the first candidates, at most `rows`, parents first; `batch` is fed before them."""
        tree = self._tree
        chosen: list[int] = []
        for work in works:
            if len(chosen) >= rows:
                break
            needed = [] if tree.is_known(work.parent) else [work.parent]
            needed.append(tree.grow(work.parent, work.token, work.logp))
            needed = [node for node in needed if node not in chosen and node not in batch]
            if len(chosen) + len(needed) <= rows:
                chosen += needed
        return chosen

    def _works(self, size: int) -> list[PendingNode]:
        """Candidate nodes for possible verdicts on the draft in flight, best first; no more than a forward pass can
        use.
        """
        tree, least = self._tree, self._tree.assumed.least_chance
        works: list[PendingNode] = []
        if self.guesses:
            for node, reach in tree.reached():
                if not tree.is_known(node) and tree.tokens.ids[node] not in self._model.eos_ids:
                    works.append(self._work(reach, node))  # feeding it shows what may follow
        outcomes = [one for one in tree.outcomes(self.guesses) if one.chance >= least]
        if self.order != "priority":
            return works + [work for one in self._ordered(outcomes) for work in self._works_for(one, size)]
        most = _LOOKED_AT * max(self.rows, 0 if self.shape is None else self.shape.beam, 1)
        best: list[float] = []  # a heap of the highest candidate values
        for work in works:
            _keep_best(best, work.value, most)
        for outcome in sorted(outcomes, key=lambda one: -one.chance):
            if len(best) >= most and best[0] >= outcome.chance:
                break  # no node after an outcome is likelier than the outcome
            for work in self._works_for(outcome, size):
                works.append(work)
                _keep_best(best, work.value, most)
        works.sort(key=lambda work: -work.value)
        return works[:most]

    def _works_for(self, outcome: Outcome, size: int) -> Iterable[PendingNode]:
        tree = self._tree
        top = tree.tokens.child(outcome.node, outcome.token)
        if top is None or not tree.is_known(top):
            yield PendingNode(outcome.chance, outcome.node, outcome.token, math.log(outcome.chance))
        elif self.shape is not None:
            yield from self._below_in_tree(top, min(size, self.shape.depth), outcome.chance)
        else:
            tip = tree.tip(top, size)
            if tip is not None:
                yield self._work(outcome.chance, tip)

    def _work(self, value: float, node: int) -> PendingNode:
        tree = self._tree
        return PendingNode(value, tree.tokens.parents[node], tree.tokens.ids[node], tree.nodes[node].logp)

    def _ordered(self, outcomes: list[Outcome]) -> list[Outcome]:
        if self.order == "fifo":
            return sorted(outcomes, key=lambda one: (not one.hinted, one.number, -one.chance))
        if self.order == "random":
            place = len(self._root or ())
            return sorted(outcomes, key=lambda one: (not one.hinted, hash((place, one.node, one.token))))
        return outcomes

    def _below_in_tree(self, top: int, size: int, chance: float) -> Iterable[PendingNode]:
        """Candidate nodes below `top` for the next forward pass, for a tree `size` levels deep."""
        waiting = [(top, chance, 1)]
        least = self._tree.assumed.least_chance
        while waiting:
            node, value, depth = waiting.pop()
            if depth >= size:
                continue
            for token, logp in self._tree.best(node):
                below = value * math.exp(logp)
                if below < least:
                    break
                if token in self._model.eos_ids:
                    continue
                child = self._tree.tokens.child(node, token)
                if child is not None and self._tree.is_known(child):
                    waiting.append((child, below, depth + 1))
                else:
                    yield PendingNode(below, node, token, logp)

    def _feed(self, batch: list[int]) -> bool:
        assert self._root is not None
        tree = self._tree
        batch = self._with_unfed_parents(batch)
        if not batch or self._model.room(len(self._root)) <= self._fed + len(batch):
            return False
        for offset, node in enumerate(batch):
            tree.nodes[node].fed = self._fed + offset
        self.rows_fed = len(batch)
        parents = [self._number(tree.tokens.parents[node]) for node in batch]
        rows = self._model.cursor.grow_tree([tree.tokens.ids[node] for node in batch], parents)
        places = [len(self._root) + 1 + tree.tokens.depths[node] for node in batch]
        for node, best in zip(batch, self._best(rows, places), strict=True):
            tree.nodes[node].best = best if self.shape is None else tree.with_repeated(node, best)
        self._fed += len(batch)
        for node in batch:
            self._force(node)
        return True

    def _with_unfed_parents(self, batch: list[int]) -> list[int]:
        """The batch with unfed ancestors (tokens that a grammar forced) inserted, parents first."""
        if not self._model.options.grammar:
            return batch
        tree = self._tree
        found: list[int] = []
        for node in batch:
            path = tree.tokens.path(node)
            found += [one for one in path if one == node or not tree.is_fed(one)]
        return list(dict.fromkeys(found))

    def _force(self, node: int) -> None:
        """Add the tokens that a grammar forces after a node's likeliest child; they need no forward pass."""
        if not self._model.options.grammar or not self._tree.best(node):
            return
        token = self._tree.best(node)[0][0]
        if token not in self._model.eos_ids:
            path = [self._tree.tokens.ids[one] for one in self._tree.tokens.path(node)]
            self._tree.force(node, self._model.cursor.forced([*(self._root or ()), *path, token], _LONGEST))

    def _number(self, node: int) -> int:
        if node == ROOT:
            return ROOT
        number = self._tree.nodes[node].fed
        assert number is not None, "a parent goes through the model first"
        return number

    def _best(self, rows: Tensor, places: list[int]) -> list[list[tuple[int, float]]]:
        """Likeliest next tokens for rows [n, vocab] at these answer positions: (token, log-probability), best first."""
        positions = torch.tensor(places, device=rows.device)
        scores = self._model.chooser.log_scores(self._model.without_placeholders(rows), positions)
        best, tokens = torch.topk(scores, min(self._tree.assumed.children, scores.shape[-1]), dim=-1)
        return [
            [(token, logp) for token, logp in zip(ids, row, strict=True) if logp > float("-inf")]
            for row, ids in zip(*read_both(best, tokens), strict=True)
        ]


def _values(works: Sequence[PendingNode]) -> list[float]:
    return [work.value for work in works]


def _keep_best(best: list[float], value: float, most: int) -> None:
    """Push a value onto a heap that keeps the `most` largest values."""
    if len(best) < most:
        heapq.heappush(best, value)
    elif value > best[0]:
        heapq.heapreplace(best, value)

# SPDX-License-Identifier: Apache-2.0
"""Possible verdicts on a draft, how likely each is, and what has been drafted behind each: the pre-draft cache.

An *outcome* is what a verdict may say: the draft is accepted up to some node, then the target says a token. The cache
is one token tree below the verified answer: the draft that left, a branch for every outcome that was begun, and
whatever grew there. It is keyed by (node, token), so a hint that names what is there already costs nothing, and a
verdict that names it finds its next draft (FSD, pre-draft cache). Knows no model: scores come in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from specdec.draft import ROOT, TokenTree
from specdec.drafting.ngram import NgramLookup

Order = Literal["priority", "fifo", "random"]
ORDERS: tuple[Order, ...] = ("priority", "fifo", "random")


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of possible verdicts where nothing is measured, and how far looking for them goes.

    These numbers only decide what is drafted first: a wrong one costs time, never a token. `repeated` is a little below
    the middle of what was measured on the text pair (0.37 to 0.52); no measurement of the others is on record, they
    were set by hand.

    exit_weight: of the deepest exit's word, in the geometric mean of its chances and the draft model's own. untold:
    however sure that exit is, so much at least is left for what it did not name. unguessed: the draft model's chance of
    a hinted token that is not among those it would think of. repeated: at least so likely is a token that followed the
    same two tokens before. children: possible next tokens that are remembered of a row. least_chance: a branch that is
    less likely to be of use is not worth a row.
    """

    exit_weight: float = 0.8
    untold: float = 0.05
    unguessed: float = 0.02
    repeated: float = 0.4
    children: int = 16
    least_chance: float = 1e-4


@dataclass
class Node:
    """What is known of a node. logp: the draft model's log-probability of its token after its parent. fed: its number
    in the model's own tree; None before it went through the model. best: what may follow it, (token, log-probability),
    likeliest first, once it went through, or where a grammar says it.
    """

    logp: float
    fed: int | None = None
    best: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Hint:
    """What an early exit of the target makes of a draft (see the wire's HintDown). node: the last accepted node."""

    node: int
    token: int
    confidence: float
    layer: int
    number: int


@dataclass(frozen=True)
class Outcome:
    """A possible verdict. chance: how likely it seems. hinted: an exit has named it; number: of that hint."""

    node: int
    token: int
    chance: float
    hinted: bool = False
    number: int = 0


class OutcomeTree:
    """What may follow one verified answer. ROOT stands for its end; nodes: what is known of those of `tokens`."""

    def __init__(self, stop_ids: frozenset[int]) -> None:
        """stop_ids: what ends an answer; nothing is drafted behind it."""
        self.assumed = Assumptions()
        self._stop_ids = stop_ids
        self.tokens = TokenTree()
        self.nodes: list[Node] = []
        self.root_best: list[tuple[int, float]] = []
        self.sent: list[int] = []
        self.ngrams = NgramLookup()
        self.hints: dict[tuple[int, int], Hint] = {}

    def plant(self, best: list[tuple[int, float]]) -> None:
        """Begin anew at an answer's end. best: what may follow it."""
        self.tokens, self.nodes = TokenTree(), []
        self.root_best = best
        self.recall()

    def recall(self) -> None:
        """Nothing is on its way any more."""
        self.sent = []
        self.hints.clear()

    def best(self, node: int) -> list[tuple[int, float]]:
        """What may follow a node, or the answer; empty before it went through the model."""
        return self.root_best if node == ROOT else self.nodes[node].best

    def is_fed(self, node: int) -> bool:
        """Whether a node went through the model."""
        return node == ROOT or self.nodes[node].fed is not None

    def is_known(self, node: int) -> bool:
        """Whether it is known what may follow a node."""
        return self.is_fed(node) or bool(self.nodes[node].best)

    def force(self, node: int, tokens: Sequence[int]) -> None:
        """Behind the likeliest child of a node come these tokens and no others: a grammar says so."""
        token, logp = self.best(node)[0]
        for forced in tokens:
            node = self.grow(node, token, logp)
            if not self.is_known(node):
                self.nodes[node].best = [(forced, 0.0)]
            token, logp = forced, 0.0

    def grow(self, node: int, token: int, logp: float) -> int:
        """The node of `token` behind `node`; made where it is not there."""
        found = self.tokens.child(node, token)
        if found is None:
            found = self.tokens.append(token, node)
            self.nodes.append(Node(logp))
        return found

    def line(self, node: int, size: int) -> list[int]:
        """The likeliest tokens behind a node, one after another as far as they are known, at most `size`."""
        tokens: list[int] = []
        at: int | None = node
        while at is not None and len(tokens) < size and self.best(at):
            tokens.append(self.best(at)[0][0])
            if tokens[-1] in self._stop_ids:
                break
            at = self.tokens.child(at, tokens[-1])
        return tokens

    def tip(self, node: int, size: int) -> int | None:
        """The node to feed next for `size` tokens behind `node`, made where it is missing; None where they are known
        already or an end comes first. What may follow the node itself must be known.
        """
        for _ in range(size - 1):
            token, logp = self.best(node)[0]
            if token in self._stop_ids:
                return None
            node = self.grow(node, token, logp)
            if not self.is_known(node):
                return node
        return None

    def walk(self, tokens: Sequence[int]) -> int | None:
        """The node that tokens lead to from the root; None where they leave the tree."""
        path = self.tokens.along(tokens)
        if len(path) < len(tokens):
            return None
        return path[-1] if path else ROOT

    def hint(self, last: int, token: int, confidence: float, layer: int) -> None:
        """An exit's word on the draft that is on its way: accepted up to node `last - 1` of the draft, then `token`."""
        if 0 <= last <= len(self.sent) and token not in self._stop_ids:
            node = self.sent[last - 1] if last else ROOT
            known = self.hints.get((node, token))
            if known is None or layer >= known.layer:
                number = known.number if known else len(self.hints)
                self.hints[node, token] = Hint(node, token, confidence, layer, number)

    def outcomes(self, guesses: bool) -> list[Outcome]:
        """Possible verdicts on the draft on its way. guesses: also those that only the draft model thinks of."""
        assumed, known = self.assumed, self._guesses()
        layer = max((hint.layer for hint in self.hints.values()), default=-1)
        told = {key: hint for key, hint in self.hints.items() if hint.layer == layer}
        untold = max(1.0 - sum(hint.confidence for hint in told.values()), assumed.untold)
        rest = sum(chance for key, chance in known.items() if key not in told)
        found: list[Outcome] = []
        for (node, token), hint in self.hints.items():
            guess = known.get((node, token), assumed.unguessed)
            by_exit = (
                hint.confidence
                if hint.layer == layer
                else min(hint.confidence, untold * guess / (rest + guess))
            )
            found.append(Outcome(node, token, self._joined(by_exit, guess), True, hint.number))
        if guesses:
            for (node, token), guess in known.items():
                if (node, token) not in self.hints:
                    by_exit = guess if layer < 0 else untold * guess / rest
                    found.append(Outcome(node, token, self._joined(by_exit, guess)))
        return found

    def _joined(self, by_exit: float, guess: float) -> float:
        """The weighted geometric mean of what an exit and what the draft model holds of an outcome."""
        weight = self.assumed.exit_weight
        mean: float = by_exit**weight * guess ** (1 - weight)
        return mean

    def _guesses(self) -> dict[tuple[int, int], float]:
        """The draft model's own chances of the outcomes it can think of."""
        sent, least = set(self.sent), self.assumed.least_chance
        chances: dict[tuple[int, int], float] = {}
        for node, reach in self.reached():
            if reach < least:
                continue
            repeated = self.ngrams.after(self._pair(node))
            if repeated is not None and self._may_follow(node, repeated, sent):
                chances[node, repeated] = reach * self.assumed.repeated
            for token, logp in self.best(node):
                chance = reach * math.exp(logp)
                if chance < least:
                    break
                if self._may_follow(node, token, sent):
                    chances[node, token] = max(chance, chances.get((node, token), 0.0))
        return chances

    def _may_follow(self, node: int, token: int, sent: set[int]) -> bool:
        """Whether a verdict may say so: it is not an end, and was not sent."""
        return token not in self._stop_ids and self.tokens.child(node, token) not in sent

    def with_repeated(self, node: int, best: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """What may follow a node, what followed the last time among it."""
        repeated = self.ngrams.after(self._pair(node))
        if repeated is None:
            return best
        known = dict(best)
        known[repeated] = max(known.get(repeated, -math.inf), math.log(self.assumed.repeated))
        return sorted(known.items(), key=lambda one: -one[1])

    def _pair(self, node: int) -> tuple[int, int] | None:
        """The two tokens that end with a node, or with the answer."""
        last = self.ngrams.pair()
        if node == ROOT or last is None:
            return last
        parent = self.tokens.parents[node]
        return (last[1] if parent == ROOT else self.tokens.ids[parent]), self.tokens.ids[node]

    def reached(self) -> Iterator[tuple[int, float]]:
        """The answer's end and every node on its way, with the draft model's chance that the verdict gets there."""
        chances = {ROOT: 1.0}
        yield ROOT, 1.0
        for node in self.sent:
            parent = self.tokens.parents[node]
            repeats = self.ngrams.after(self._pair(parent)) == self.tokens.ids[node]
            least = self.assumed.repeated if repeats else 0.0
            chances[node] = chances[parent] * max(math.exp(self.nodes[node].logp), least)
            yield node, chances[node]

    def descend(self, top: int, numbers: dict[int, int]) -> None:
        """Make `top` the root: what grew behind it stays. numbers: where in the model's tree its fed nodes are now."""
        if top != ROOT:
            self.root_best = self.nodes[top].best
        kept = self.tokens.below(top)
        self.tokens = self.tokens.select(kept, top)
        self.nodes = [self.nodes[node] for node in kept]
        for node in self.nodes:
            node.fed = None if node.fed is None else numbers[node.fed]
        self.recall()

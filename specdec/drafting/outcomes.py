# SPDX-License-Identifier: Apache-2.0
"""The pre-draft cache: possible verdicts on a draft, their chances, and the tokens drafted after each.

An *outcome* is a possible verdict: the draft is accepted up to some node, then the target's next token follows. The
cache is one token tree below the verified answer. It holds the draft in flight, and a branch for each outcome that was
prepared for. It is keyed by (node, token): a hint for an existing branch costs nothing, and a verdict finds its next
draft there (FSD, pre-draft cache). Independent of models: scores are passed in.
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
    """Constants for the chances of outcomes.

    They only decide what is drafted first: a wrong value costs time, never a token. `repeated` is a little below the
    middle of the range measured on the text pair (0.37 to 0.52). The others were set by hand, without a recorded
    measurement.

    Attributes:
        exit_weight: Weight of the deepest exit in the geometric mean of its chance and the draft model's.
        untold: Probability that is reserved for outcomes the exit did not name, however confident it is.
        unguessed: Assumed draft-model chance of a hinted token that is not among its likeliest ones.
        repeated: Least chance of a token that followed the same two tokens before.
        children: Next tokens that are stored per row.
        least_chance: A branch that is less likely to be useful is not worth a row.
    """

    exit_weight: float = 0.8
    untold: float = 0.05
    unguessed: float = 0.02
    repeated: float = 0.4
    children: int = 16
    least_chance: float = 1e-4


@dataclass
class Node:
    """Data of a tree node. logp: the draft model's log-probability of its token after its parent. fed: its number in
    the model session's tree; None before it was fed. best: likeliest next tokens as (token, log-probability), best
    first; set once the node is fed, or by a grammar.
    """

    logp: float
    fed: int | None = None
    best: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Hint:
    """An early exit's prediction (see HintDown in specdec.link.wire). node: the last accepted node."""

    node: int
    token: int
    confidence: float
    layer: int
    number: int


@dataclass(frozen=True)
class Outcome:
    """A possible verdict. chance: its estimated probability. hinted: whether an exit named it. number: of that hint."""

    node: int
    token: int
    chance: float
    hinted: bool = False
    number: int = 0


class OutcomeTree:
    """The outcomes and drafts below one verified answer, whose end is ROOT. nodes: data of each node in `tokens`."""

    def __init__(self, stop_ids: frozenset[int]) -> None:
        """stop_ids: tokens that end an answer; nothing is drafted after them."""
        self.assumed = Assumptions()
        self._stop_ids = stop_ids
        self.tokens = TokenTree()
        self.nodes: list[Node] = []
        self.root_best: list[tuple[int, float]] = []
        self.sent: list[int] = []
        self.ngrams = NgramLookup()
        self.hints: dict[tuple[int, int], Hint] = {}

    def plant(self, best: list[tuple[int, float]]) -> None:
        """Reset the tree to the end of an answer. best: likeliest next tokens there."""
        self.tokens, self.nodes = TokenTree(), []
        self.root_best = best
        self.recall()

    def recall(self) -> None:
        """Note that no draft is in flight any more."""
        self.sent = []
        self.hints.clear()

    def best(self, node: int) -> list[tuple[int, float]]:
        """Likeliest next tokens after a node or ROOT; empty before the node was fed."""
        return self.root_best if node == ROOT else self.nodes[node].best

    def is_fed(self, node: int) -> bool:
        """Whether a node was fed to the model."""
        return node == ROOT or self.nodes[node].fed is not None

    def is_known(self, node: int) -> bool:
        """Whether the next tokens after a node are known."""
        return self.is_fed(node) or bool(self.nodes[node].best)

    def force(self, node: int, tokens: Sequence[int]) -> None:
        """Add the tokens that a grammar forces after a node's likeliest child."""
        token, logp = self.best(node)[0]
        for forced in tokens:
            node = self.grow(node, token, logp)
            if not self.is_known(node):
                self.nodes[node].best = [(forced, 0.0)]
            token, logp = forced, 0.0

    def grow(self, node: int, token: int, logp: float) -> int:
        """The child of `node` that holds `token`; created if missing."""
        found = self.tokens.child(node, token)
        if found is None:
            found = self.tokens.append(token, node)
            self.nodes.append(Node(logp))
        return found

    def line(self, node: int, size: int) -> list[int]:
        """The likeliest chain of tokens after a node, as far as it is known, at most `size` tokens."""
        tokens: list[int] = []
        at: int | None = node
        while at is not None and len(tokens) < size and self.best(at):
            tokens.append(self.best(at)[0][0])
            if tokens[-1] in self._stop_ids:
                break
            at = self.tokens.child(at, tokens[-1])
        return tokens

    def tip(self, node: int, size: int) -> int | None:
        """The node to feed next to get a chain of `size` tokens after `node`; created if missing.

        None if the chain is known already or ends first. The next tokens after `node` itself must be known.
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
        """The node at the end of a token path from the root; None if the path leaves the tree."""
        path = self.tokens.along(tokens)
        if len(path) < len(tokens):
            return None
        return path[-1] if path else ROOT

    def hint(self, last: int, token: int, confidence: float, layer: int) -> None:
        """Store a hint about the draft in flight: node `last - 1` of the draft is the last accepted, then `token`."""
        if 0 <= last <= len(self.sent) and token not in self._stop_ids:
            node = self.sent[last - 1] if last else ROOT
            known = self.hints.get((node, token))
            if known is None or layer >= known.layer:
                number = known.number if known else len(self.hints)
                self.hints[node, token] = Hint(node, token, confidence, layer, number)

    def outcomes(self, guesses: bool) -> list[Outcome]:
        """Possible verdicts on the draft in flight. guesses: include those that only the draft model suggests."""
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
        """The weighted geometric mean of the exit's and the draft model's chance of an outcome."""
        weight = self.assumed.exit_weight
        mean: float = by_exit**weight * guess ** (1 - weight)
        return mean

    def _guesses(self) -> dict[tuple[int, int], float]:
        """The draft model's chances of its likeliest outcomes, by (node, token)."""
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
        """Whether the token may be a verdict's next token that needs a draft: it ends nothing and was not sent."""
        return token not in self._stop_ids and self.tokens.child(node, token) not in sent

    def with_repeated(self, node: int, best: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Likeliest next tokens, with the token that followed the same pair the last time included."""
        repeated = self.ngrams.after(self._pair(node))
        if repeated is None:
            return best
        known = dict(best)
        known[repeated] = max(known.get(repeated, -math.inf), math.log(self.assumed.repeated))
        return sorted(known.items(), key=lambda one: -one[1])

    def _pair(self, node: int) -> tuple[int, int] | None:
        """The last two tokens of the path to a node, or of the answer for ROOT."""
        last = self.ngrams.pair()
        if node == ROOT or last is None:
            return last
        parent = self.tokens.parents[node]
        return (last[1] if parent == ROOT else self.tokens.ids[parent]), self.tokens.ids[node]

    def reached(self) -> Iterator[tuple[int, float]]:
        """ROOT and every node in flight, with the draft model's chance that the verdict accepts it."""
        chances = {ROOT: 1.0}
        yield ROOT, 1.0
        for node in self.sent:
            parent = self.tokens.parents[node]
            repeats = self.ngrams.after(self._pair(parent)) == self.tokens.ids[node]
            least = self.assumed.repeated if repeats else 0.0
            chances[node] = chances[parent] * max(math.exp(self.nodes[node].logp), least)
            yield node, chances[node]

    def descend(self, top: int, numbers: dict[int, int]) -> None:
        """Make `top` the root and keep only its descendants. numbers: new model-tree numbers of fed nodes, by old ones.
        """
        if top != ROOT:
            self.root_best = self.nodes[top].best
        kept = self.tokens.below(top)
        self.tokens = self.tokens.select(kept, top)
        self.nodes = [self.nodes[node] for node in kept]
        for node in self.nodes:
            node.fed = None if node.fed is None else numbers[node.fed]
        self.recall()

# SPDX-License-Identifier: Apache-2.0
"""Continuations of an answer whose grammar leaves few choices: a draft without a draft model.

Between two choices the grammar forces the tokens, so a small tree covers all continuations for several steps. The
target verifies it in one forward pass, which makes all choices that would otherwise take one pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specdec.draft import ROOT, TokenTree
from specdec.errors import ModelError
from specdec.sampling.grammar import FollowedGrammar, Grammar, GrammarState

MOST_NODES = 32
_MOST_ALLOWED = 64
"""With more allowed tokens than this, a place is no choice between few options."""
_FEWEST, _MOST_OPTIONS = 2, 6
_MOST_LEVELS = 4


@dataclass(frozen=True)
class Choices:
    """Continuations up to further choices. tree: their tokens. sizes: how many of its nodes cover the first 1, 2, ...
    levels of choices.
    """

    tree: TokenTree
    sizes: tuple[int, ...] = ()

    def worth(self, price_s: Callable[[int], float | None]) -> int:
        """How many of the nodes to send; 0: none. price_s: seconds of a pass over n rows; None: unknown, rows then
        count as free.

        The first choice is made in any case. Each further choice made in the same pass saves a pass of one row.
        """
        alone_s = price_s(1)
        if alone_s is None:
            return self.sizes[-1] if self.sizes else 0
        best, most_s = 0, 0.0
        for saved, size in enumerate(self.sizes, start=1):
            dearer_s = (price_s(1 + size) or alone_s) - alone_s
            if saved * alone_s - dearer_s > most_s:
                best, most_s = size, saved * alone_s - dearer_s
        return best


def choices_along(followed: FollowedGrammar, answer: Sequence[int], most: int) -> Choices:
    """The continuations of an answer; empty if the answer does not follow the grammar."""
    place = followed.place(answer)
    return Choices(TokenTree()) if place is None else choices_after(followed.grammar, place, most)


def choices_after(grammar: Grammar, place: GrammarState, most: int = MOST_NODES) -> Choices:
    """The continuations from a grammar state, in at most `most` nodes; empty if many tokens, or an EOS, may come next.

    If one option's text is a prefix of another's, the longer one is taken, which is the usual tokenization. Branches
    without a further choice are left out, because their tokens are forced.
    """
    tree = TokenTree()
    sizes: list[int] = []
    _, begun, first = _next_choice(grammar, place)  # forced tokens are in the answer already
    frontier = [(ROOT, begun, first)]
    for _ in range(_MOST_LEVELS):
        grown: list[tuple[int, GrammarState, list[int]]] = []
        for node, at, options in frontier:
            for token in options:
                behind = grammar.next(at, token)
                run, there, further = ([], at, []) if behind is None else _next_choice(grammar, behind)
                if not further or len(tree) + 1 + len(run) > most:
                    continue
                end = node
                for one in (token, *run):
                    end = tree.append(one, end)
                grown.append((end, there, further))
        if not grown:
            break
        sizes.append(len(tree))
        frontier = grown
    return Choices(tree, tuple(sizes))


def _next_choice(grammar: Grammar, place: GrammarState) -> tuple[list[int], GrammarState, list[int]]:
    """The forced tokens, the state after them, and the few options there; no options if there are none or many."""
    run: list[int] = []
    while len(run) < MOST_NODES:
        try:
            allowed = np.flatnonzero(grammar.allowed(place)).tolist()
        except ModelError:  # a dead end, or too much work; the answer need not get there
            return run, place, []
        if len(allowed) > _MOST_ALLOWED or not grammar.eos_ids.isdisjoint(allowed):
            break
        if len(allowed) > 1:
            options = _longest(allowed, grammar.spelling)
            few = _FEWEST <= len(options) <= _MOST_OPTIONS
            return run, place, options if few else []
        following = grammar.next(place, allowed[0])
        if following is None:
            break
        run.append(allowed[0])
        place = following
    return run, place, []


def _longest(tokens: Sequence[int], spelling: Callable[[int], bytes]) -> list[int]:
    """The tokens whose text is not a prefix of another token's text."""
    spelled = {token: spelling(token) for token in tokens}
    return [
        token
        for token, text in spelled.items()
        if not any(other != text and other.startswith(text) for other in spelled.values())
    ]

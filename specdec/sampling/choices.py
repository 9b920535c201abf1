# SPDX-License-Identifier: Apache-2.0
"""What may follow an answer where its grammar leaves few choices: a draft that takes no draft model.

Between two choices a grammar forces what is said, so that a handful of tokens are all the ways on for several steps.
They go through the target as one tree, and one forward makes all the choices that would have taken one each.
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
"""More tokens than these are not a choice between few things."""
_FEWEST, _MOST_OPTIONS = 2, 6
_MOST_LEVELS = 4


@dataclass(frozen=True)
class Choices:
    """tree: the ways to further choices behind the first one. sizes: how many of its nodes lead to the first 1, 2, ...
    of these.
    """

    tree: TokenTree
    sizes: tuple[int, ...] = ()

    def worth(self, price_s: Callable[[int], float | None]) -> int:
        """How many of the nodes to send, 0 for none. price_s: seconds of a forward over n rows, None: unknown; then
        rows are taken to be free.

        The first choice is made anyway. Each further one that is made with it saves a forward of one row.
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
    """The ways on from an answer that follows a grammar; none for one that does not."""
    place = followed.place(answer)
    return Choices(TokenTree()) if place is None else choices_after(followed.grammar, place, most)


def choices_after(grammar: Grammar, place: GrammarState, most: int = MOST_NODES) -> Choices:
    """The ways on from a place, at most this many nodes; none where more than a few tokens may come, or an end.

    Of options of which one is the beginning of another, the longer one is taken: the usual spelling. A way without
    another choice is left out: what comes there is forced.
    """
    tree = TokenTree()
    sizes: list[int] = []
    _, begun, first = _next_choice(grammar, place)  # nothing is forced there: that stands in the answer already
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
    """What is forced, where that leads, and the few options there; no options where there are none or many."""
    run: list[int] = []
    while len(run) < MOST_NODES:
        try:
            allowed = np.flatnonzero(grammar.allowed(place)).tolist()
        except ModelError:  # it leads nowhere, or is too much work: the answer need not come there
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
    """Those that are not the beginning of another one."""
    spelled = {token: spelling(token) for token in tokens}
    return [
        token
        for token, text in spelled.items()
        if not any(other != text and other.startswith(text) for other in spelled.values())
    ]

# SPDX-License-Identifier: Apache-2.0
"""Judging a draft, as a pure function: what the target picks at every node decides, the draft never does.

The emitted tokens are always the target's own picks, so the answer is what the target alone would have said
.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from specdec.drafting import ROOT, Draft


@dataclass(frozen=True)
class Judgement:
    """path: accepted node indices from the root on. token: the target's own next token after them."""

    path: tuple[int, ...]
    token: int

    @property
    def last(self) -> int:
        """One more than the last accepted node's index; 0 if none was. In a chain: how many were accepted."""
        return self.path[-1] + 1 if self.path else 0


def judge(draft: Draft, picks: Sequence[int], eos_ids: Set[int]) -> Judgement:
    """Walk down the draft along the target's picks.

    picks[0] is the target's pick after the answer alone, picks[i + 1] its pick after node i. An EOS pick ends
    the walk and is returned as the token: nothing after an EOS is ever accepted, even if it was drafted.
    """
    if draft.parents is None:
        for index, token in enumerate(draft.ids):
            if picks[index] != token or token in eos_ids:
                return Judgement(tuple(range(index)), picks[index])
        return Judgement(tuple(range(len(draft.ids))), picks[len(draft.ids)])
    path: list[int] = []
    node = ROOT
    while True:
        pick = picks[node + 1]
        child = None if pick in eos_ids else draft.tree.child(node, pick)
        if child is None:
            return Judgement(tuple(path), pick)
        path.append(child)
        node = child


def path_to(draft: Draft, last: int) -> list[int]:
    """Node indices from the root to node `last - 1` (see Judgement.last)."""
    if draft.parents is None:
        return list(range(last))
    return draft.tree.path(last - 1)

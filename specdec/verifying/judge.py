# SPDX-License-Identifier: Apache-2.0
"""Judging a draft, as a pure function: the target's picks decide, never the draft.

The emitted tokens are always the target's own picks, so the answer equals that of the target alone.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from specdec.drafting import ROOT, Draft


@dataclass(frozen=True)
class Judgement:
    """path: indices of the accepted nodes, from the root on. token: the target's next token after them."""

    path: tuple[int, ...]
    token: int

    @property
    def last(self) -> int:
        """Index of the last accepted node + 1; 0 if none was accepted. In a chain: the number of accepted tokens."""
        return self.path[-1] + 1 if self.path else 0


def judge(draft: Draft, picks: Sequence[int], eos_ids: Set[int]) -> Judgement:
    """Walk down the draft along the target's picks.

    picks[0] is the target's pick after the answer alone, picks[i + 1] its pick after node i. An EOS pick ends the walk
    and is returned as the token: nothing after an EOS is accepted, even if it was drafted.
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

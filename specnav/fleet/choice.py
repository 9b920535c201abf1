# SPDX-License-Identifier: Apache-2.0
"""Which replica an edge is given: the one with the fewest answers that would come before its own, unless another one
knows its prompt and has hardly more. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLACK = 2
"""Answers in progress that a replica may have over the fewest and still keep an edge, or be given one whose prompt it
knows. As the planner has it (specnav.plan.simulated)."""


@dataclass(frozen=True)
class ReplicaCandidate:
    """A replica as one edge sees it. ahead: answers in progress there of edges whose class comes before this edge's or
    is the same. active: all of them. assigned: edges that have it. familiar: marks of the edge's prompt that it knows.
    """

    address: str
    ahead: int = 0
    active: int = 0
    assigned: int = 0
    familiar: int = 0


def choose(candidates: Sequence[ReplicaCandidate], at: str = "", avoid: Sequence[str] = ()) -> list[str]:
    """Addresses, the best first; what is to be avoided comes behind all else. at: what the edge has now."""
    if not candidates:
        return []
    wanted = [one for one in candidates if one.address not in avoid]
    fewest = min((one.ahead for one in wanted), default=0)

    def order(one: ReplicaCandidate) -> tuple[int, int, int, int, int, str]:
        near = one.ahead <= fewest + SLACK
        kept = one.address == at and near
        familiar = one.familiar if near and not at else 0
        return (-int(kept), -familiar, one.ahead, one.active, one.assigned, one.address)

    avoided = sorted((one for one in candidates if one.address in avoid), key=order)
    return [one.address for one in (*sorted(wanted, key=order), *avoided)]

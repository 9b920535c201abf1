# SPDX-License-Identifier: Apache-2.0
"""Chooses a replica for an edge: the one with the fewest answers ahead of this edge's, unless a replica that knows its
prompt has hardly more. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLACK = 2
"""A replica may have this many more answers in progress than the least loaded one and still keep an edge, or get one
whose prompt it knows. The planner uses the same rule (specnav.plan.simulated)."""


@dataclass(frozen=True)
class ReplicaCandidate:
    """A replica as one edge sees it. ahead: answers in progress there whose edge's class comes before this edge's class
    or equals it. active: all answers in progress. assigned: edges assigned to it. familiar: marks of the edge's prompt
    that it knows.
    """

    address: str
    ahead: int = 0
    active: int = 0
    assigned: int = 0
    familiar: int = 0


def choose(candidates: Sequence[ReplicaCandidate], at: str = "", avoid: Sequence[str] = ()) -> list[str]:
    """Addresses, best first; those in `avoid` come last. at: the edge's current replica."""
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

# SPDX-License-Identifier: Apache-2.0
"""How many replicas are wanted, and the next step towards that number in one generation.

Level-triggered: each step looks at the current state, not at earlier steps, so that a directory that was killed during
an upgrade continues it. Pure, except for the memory of how long the load has been high or low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

from specnav.fleet.settings import ReplicaBounds, Scaling

State = Literal["starting", "ready", "draining", "failed", "left_out"]


@dataclass(frozen=True)
class ReplicaLoad:
    """A replica as the fleet sees it. number: part of its name; larger ones are younger. active: answers in
    progress.
    """

    number: int
    generation: int
    state: State
    active: int = 0


@dataclass(frozen=True)
class ScalingStep:
    """What to do now: number of replicas to start, and numbers of replicas to drain."""

    start: int = 0
    drain: tuple[int, ...] = ()


def next_step(seen: Sequence[ReplicaLoad], wanted: int, generation: int, surge: bool) -> ScalingStep:
    """The next step towards `wanted` replicas of this generation, replacing old ones one by one."""
    new = [one for one in seen if one.generation == generation and one.state != "draining"]
    old = [one for one in seen if one.generation != generation and one.state != "draining"]
    draining = [one for one in seen if one.state == "draining"]
    serving = [one for one in new if one.state == "ready"]
    if not old:
        missing = wanted - len(new)
        if missing >= 0:
            return ScalingStep(start=missing)
        # Drain the least useful first: those not serving, then the least busy, then the youngest.
        order = sorted(new, key=lambda one: (one.state == "ready", one.active, -one.number))
        return ScalingStep(drain=tuple(one.number for one in order[:-missing]))
    if any(one.state not in ("ready", "failed", "left_out") for one in new) or draining:
        return ScalingStep()  # one at a time
    stuck = len(new) - len(serving)
    if stuck:
        return ScalingStep()  # new replicas fail to start: keep the old ones
    if len(new) + len(old) > wanted or (not surge and len(new) + len(old) >= wanted):
        oldest = min(old, key=lambda one: (one.state == "ready", one.number))
        if surge and not serving and oldest.state == "ready":
            return ScalingStep(start=1)
        return ScalingStep(drain=(oldest.number,))
    return ScalingStep(start=1)


class Scaler:
    """Remembers since when the load has been too high or too low."""

    def __init__(self, scaling: Scaling) -> None:
        self._scaling = scaling
        self._busy_since: float | None = None
        self._idle_since: float | None = None

    def wanted(self, now: float, wanted: int, working: int, bounds: ReplicaBounds) -> int:
        """Replicas wanted from now on. wanted: until now; working: sessions that the replicas work on."""
        scaling = self._scaling
        needed = max(bounds.least, min(bounds.most, ceil(working / scaling.edges)))
        wanted = max(bounds.least, min(bounds.most, wanted))
        self._busy_since = (self._busy_since or now) if needed > wanted else None
        self._idle_since = (self._idle_since or now) if needed < wanted else None
        if self._busy_since is not None and now - self._busy_since >= scaling.busy_s:
            self._busy_since = None
            return needed
        if self._idle_since is not None and now - self._idle_since >= scaling.idle_s:
            self._idle_since = None
            return wanted - 1
        return wanted

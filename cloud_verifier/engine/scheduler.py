# SPDX-License-Identifier: Apache-2.0
"""Which rows share the next forward.

A forward has a budget of rows: a fixed one and, where a latency is asked for, as many as have ended within it.
Sessions that verify or decode come first, by class and by how long they have waited; prompts and very long drafts
take what is left, in chunks, so that a long one delays no client by more than its chunk. No wait is endless: what has
waited long comes before what is of a higher class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloud_verifier.engine.policy import Policy

# The planner simulates fleets with this scheduler and starts without torch.
if TYPE_CHECKING:
    from torch import Tensor

    from cloud_verifier.engine.work import SessionWork
    from specdec.models.plans import Extension

AGING_S = 1.0
"""Who has waited for this long goes before one class above its own."""
CREDIT_S = 1.0
"""Of the forwards' time: who has had so much less than others comes first for as long as that, and no longer."""
LONGEST_WHOLE = 64
"""Rows of a draft that come in one forward whatever the chunks of prompts are."""


@dataclass
class WaitingSession:
    """What a session wants of a forward. part: the rows that come into the next one; rest: those that come later.

    done: logits of the rows of forwards before, where those of all rows are wanted.
    """

    work: SessionWork
    need: Extension
    since_s: float
    rest: Extension | None = None
    done: tuple[Tensor, ...] = ()

    @property
    def part(self) -> Extension:
        """What comes into the forward that it was picked for."""
        return self._part or self.need

    _part: Extension | None = None

    def take(self, rows: int) -> int:
        """Bring in at most this many rows now; returns how many."""
        if self.need.rows <= rows:
            self._part, self.rest = self.need, None
        else:
            self._part, self.rest = self.need.divide(rows)
        return self._part.rows

    def after(self, logits: Tensor, now: float) -> WaitingSession | None:
        """What is left to do after its part has come; None: nothing."""
        if self.rest is None:
            return None
        done = () if self.need.last_only else (*self.done, logits)
        return WaitingSession(self.work, self.rest, now, done=done)

    def whole(self, logits: Tensor) -> Tensor:
        """The logits that were wanted, from those of the last part."""
        if not self.done:
            return logits
        import torch

        return torch.cat([*self.done, logits])


class Scheduler:
    """Picks what comes into a forward and remembers who got how much."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._served: dict[bytes, float] = {}
        self._most_served = 0.0
        self._turn = 0
        self._cost = RowCost()

    def pick(self, waiting: Sequence[WaitingSession], now: float, sessions: int) -> list[WaitingSession]:
        """Those that share the next forward; at least one. sessions: how many are open.

        Only sessions of one model may share a forward: the first in order says which.
        """
        if len(waiting) == 1 and (sessions == 1 or not self._comes_in_parts(waiting[0])):
            waiting[0].take(waiting[0].need.rows)
            return list(waiting)
        ordered = sorted(waiting, key=lambda one: self._order(one, now))
        model = ordered[0].need.together_with
        ordered = [one for one in ordered if one.need.together_with == model]
        ordered = self._of_the_group_whose_turn_it_is(ordered)
        picked: list[WaitingSession] = []
        room = self._room()
        for one in ordered:
            if not self._comes_in_parts(one) and (one.need.rows <= room or not picked):
                room -= one.take(one.need.rows)
                picked.append(one)
        # Alone, a prompt is done at once; else a client's draft may come while its forward runs.
        chunk = min(room, self.policy.chunk) if sessions > 1 else room
        # Of long drafts one is ended before another begins: the logits of its parts take memory.
        begun = any(one.done for one in ordered)
        for one in ordered:
            if not self._comes_in_parts(one) or (chunk <= 0 and picked):
                continue
            if one.need.divisible or one.done or not begun:
                begun |= not one.need.divisible
                chunk -= one.take(max(chunk, 1))
                picked.append(one)
        return picked

    def ran(self, picked: Sequence[WaitingSession], seconds: float) -> None:
        """A forward of these took so long."""
        rows = sum(one.part.rows for one in picked)
        self._cost.ran(rows, seconds)
        for one in picked:
            served = self._served_of(one.work.owner) + seconds * one.part.rows / rows
            self._served[one.work.owner] = served
            self._most_served = max(self._most_served, served)
        if len(self._served) > 1000:  # clients come and go
            self._served.clear()

    def _comes_in_parts(self, one: WaitingSession) -> bool:
        """Whether it need not come in one forward: a prompt, or a draft so long that others would wait for it."""
        return bool(one.done) or one.need.divisible or one.need.rows > max(LONGEST_WHOLE, self.policy.chunk)

    def _room(self) -> int:
        """Rows of the next forward, at most."""
        within = None
        if self.policy.latency_ms:
            within = self._cost.rows_within(self.policy.latency_ms / 1e3)
        return self.policy.rows if within is None else min(self.policy.rows, within)

    def _order(self, one: WaitingSession, now: float) -> tuple[int, float, float]:
        aged = one.work.rank - int((now - one.since_s) / AGING_S)
        return aged, self._served_of(one.work.owner) if aged >= 0 else 0.0, one.since_s

    def _served_of(self, owner: bytes) -> float:
        """Seconds of forwards that count as one's own. Who is new begins with the most that anybody has: a new name
        each time is worth nothing.
        """
        served = self._served.setdefault(owner, self._most_served)
        return max(served, self._most_served - CREDIT_S)

    def _of_the_group_whose_turn_it_is(self, ordered: list[WaitingSession]) -> list[WaitingSession]:
        groups = self.policy.groups
        if groups == 1:
            return ordered
        for step in range(groups):
            turn = (self._turn + step) % groups
            chosen = [one for one in ordered if one.work.number % groups == turn]
            if chosen:
                self._turn = turn + 1
                return chosen
        return ordered


_FORGET = 0.98
"""A forward counts so much less with every one after it: some fifty are remembered."""


class RowCost:
    """A straight line through (rows, seconds) of past forwards, the latest weighing most."""

    def __init__(self) -> None:
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def ran(self, rows: int, seconds: float) -> None:
        """One forward more."""
        self._weight = _FORGET * self._weight + 1
        self._rows = _FORGET * self._rows + rows
        self._seconds = _FORGET * self._seconds + seconds
        self._squares = _FORGET * self._squares + rows * rows
        self._products = _FORGET * self._products + rows * seconds

    def rows_within(self, seconds: float) -> int | None:
        """How many rows a forward may have to end in time, at least 1; None where rows make no difference so far."""
        if not self._weight:
            return None
        spread = self._weight * self._squares - self._rows**2
        slope = self._weight * self._products - self._rows * self._seconds
        if spread <= 1e-6 * self._squares * self._weight or slope <= 0:
            return None
        a_row = slope / spread
        without = (self._seconds - a_row * self._rows) / self._weight
        return max(1, int((seconds - without) / a_row + 1e-6))

# SPDX-License-Identifier: Apache-2.0
"""Chooses the rows that share the next forward pass.

A pass has a row budget: a fixed one and, if a latency bound is set, as many rows as earlier passes finished within it.
Sessions that verify or decode come first: by class, then those of clients that got less, then by waiting time. Prompts
and very long drafts use the remaining rows in chunks, so that a long one delays no client by more than its chunk. No
session starves: long waiting moves a session ahead of higher classes, and a prompt's chunk ahead of drafts.
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
"""Waiting this long moves a session up by one class, and a prompt's next chunk ahead of drafts."""
CREDIT_S = 1.0
"""Seconds of forward passes: a client that got less than others is preferred until it has caught up this much."""
LONGEST_WHOLE = 64
"""A draft of at most this many rows is never split, whatever the chunk size of prompts is."""


@dataclass
class WaitingSession:
    """What a session needs from forward passes. part: rows for the next pass; rest: rows for later ones.

    done: logits of earlier parts, kept if the logits of all rows are wanted.
    """

    work: SessionWork
    need: Extension
    since_s: float
    rest: Extension | None = None
    done: tuple[Tensor, ...] = ()

    @property
    def part(self) -> Extension:
        """The rows for the forward pass that it was picked for."""
        return self._part or self.need

    _part: Extension | None = None

    def take(self, rows: int) -> int:
        """Use at most this many rows now; returns how many."""
        if self.need.rows <= rows:
            self._part, self.rest = self.need, None
        else:
            self._part, self.rest = self.need.divide(rows)
        return self._part.rows

    def after(self, logits: Tensor, now: float) -> WaitingSession | None:
        """What is left after this part; None: nothing."""
        if self.rest is None:
            return None
        done = () if self.need.last_only else (*self.done, logits)
        return WaitingSession(self.work, self.rest, now, done=done)

    def whole(self, logits: Tensor) -> Tensor:
        """All logits that were wanted, given those of the last part."""
        if not self.done:
            return logits
        import torch

        return torch.cat([*self.done, logits])


class Scheduler:
    """Picks the rows of a forward pass and tracks how much each client got."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._served: dict[bytes, float] = {}
        self._most_served = 0.0
        self._turn = 0
        self._cost = RowCost()

    def pick(self, waiting: Sequence[WaitingSession], now: float, sessions: int) -> list[WaitingSession]:
        """The sessions that share the next forward pass; at least one. sessions: number of open sessions.

        Only sessions of the same model can share a pass; the first in order decides the model.
        """
        if len(waiting) == 1 and (sessions == 1 or not self._comes_in_parts(waiting[0])):
            waiting[0].take(waiting[0].need.rows)
            return list(waiting)
        ordered = sorted(waiting, key=lambda one: self._order(one, now))
        model = ordered[0].need.together_with
        ordered = [one for one in ordered if one.need.together_with == model]
        ordered = self._of_the_group_whose_turn_it_is(ordered)
        whole = [one for one in ordered if not self._comes_in_parts(one)]
        # Finish one long draft before starting another: the logits of its parts take memory.
        begun = any(one.done for one in ordered)
        in_parts: list[WaitingSession] = []
        for one in ordered:
            if self._comes_in_parts(one) and (one.need.divisible or one.done or not begun):
                begun |= not one.need.divisible
                in_parts.append(one)
        aged = [one for one in in_parts[:1] if one is ordered[0] and now - one.since_s >= AGING_S]
        picked: list[WaitingSession] = []
        room = self._room()
        # A lone session's prompt is not split. Otherwise another draft may arrive during the pass.
        chunk = self.policy.chunk if sessions > 1 else room
        for one in (*aged, *whole, *in_parts[len(aged) :]):
            is_part = self._comes_in_parts(one)
            rows = min(room, chunk) if is_part else one.need.rows
            if picked and not 0 < rows <= room:
                continue
            used = one.take(max(rows, 1))
            picked.append(one)
            room -= used
            if is_part:
                chunk -= used
        return picked

    def ran(self, picked: Sequence[WaitingSession], seconds: float) -> None:
        """A forward pass over these sessions took `seconds`."""
        rows = sum(one.part.rows for one in picked)
        self._cost.ran(rows, seconds)
        for one in picked:
            served = self._served_of(one.work.owner) + seconds * one.part.rows / rows
            self._served[one.work.owner] = served
            self._most_served = max(self._most_served, served)
        if len(self._served) > 1000:  # clients come and go
            self._served.clear()

    def _comes_in_parts(self, one: WaitingSession) -> bool:
        """Whether it may be split over several passes: a prompt, or a draft so long that others would wait for it."""
        return bool(one.done) or one.need.divisible or one.need.rows > max(LONGEST_WHOLE, self.policy.chunk)

    def _room(self) -> int:
        """Row budget of the next forward pass."""
        within = None
        if self.policy.latency_ms:
            within = self._cost.rows_within(self.policy.latency_ms / 1e3)
        return self.policy.rows if within is None else min(self.policy.rows, within)

    def _order(self, one: WaitingSession, now: float) -> tuple[int, float, float]:
        aged = one.work.rank - int((now - one.since_s) / AGING_S)
        return aged, self._served_of(one.work.owner) if aged >= 0 else 0.0, one.since_s

    def _served_of(self, owner: bytes) -> float:
        """Seconds of forward passes charged to an owner. A new owner starts with the highest value of all, so that
        coming back under a new name gains nothing.
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
"""Weight decay per forward pass: about the last fifty passes count."""


class RowCost:
    """A line fitted to (rows, seconds) of past forward passes; recent ones weigh most."""

    def __init__(self) -> None:
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def ran(self, rows: int, seconds: float) -> None:
        """Add a forward pass."""
        self._weight = _FORGET * self._weight + 1
        self._rows = _FORGET * self._rows + rows
        self._seconds = _FORGET * self._seconds + seconds
        self._squares = _FORGET * self._squares + rows * rows
        self._products = _FORGET * self._products + rows * seconds

    def rows_within(self, seconds: float) -> int | None:
        """Rows that a forward pass can have and finish in time, 1 at least; None if rows made no difference so
        far.
        """
        if not self._weight:
            return None
        spread = self._weight * self._squares - self._rows**2
        slope = self._weight * self._products - self._rows * self._seconds
        if spread <= 1e-6 * self._squares * self._weight or slope <= 0:
            return None
        a_row = slope / spread
        without = (self._seconds - a_row * self._rows) / self._weight
        return max(1, int((seconds - without) / a_row + 1e-6))

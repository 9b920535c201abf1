# SPDX-License-Identifier: Apache-2.0
"""Lookup drafters: alone, so that the edge needs no draft model, or combined with one, the better of both each round.

The target decides every token, so lookups cannot change an answer.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from specdec.draft import Draft, promise_of
from specdec.drafting.chain import ChainDrafter
from specdec.drafting.drafter import DraftModel, Proposal
from specdec.drafting.lookup.suffixes import LONGEST_ENDING, Found, SuffixMemory
from specdec.estimates.measured import RunningMean
from specdec.models import Prompt
from specdec.models.plans import Plan, planned

_FIRST_REACH, _FIRST_OWN_REACH = 0.3, 4.0
"""Initial guesses: accepted tokens of a lookup per matched token of its ending, and accepted tokens of the model's
chains. The second is optimistic: the model's reach is learnt only from drafts that are sent, so it must be tried before
it is passed over.
"""


class LookupDrafter:
    """Drafts what followed the same ending the last time. Its steps take no forward pass and negligible time.

    forwards: forward passes of the last step, always 0. tells_chances: as in ChainDrafter.
    """

    forwards = 0

    def __init__(self, memory: SuffixMemory, eos_ids: Set[int] = frozenset(), never: Set[int] = frozenset()) -> None:
        """eos_ids: a draft ends with one; may be empty if unknown. never: tokens that must not be drafted."""
        self._memory = memory
        self._eos_ids = eos_ids
        self._never = never
        self.tells_chances = False
        self._predicted: list[int] = []
        self._chances: list[float] = []
        self._looked_up: list[int] | None = None

    @planned
    def prefill(self, prompt: Prompt) -> Plan[None]:
        """Index the prompt; a plan without forward passes."""
        yield from ()
        self._memory.begin(prompt.ids, self._never)
        self._predicted, self._chances, self._looked_up = [], [], None

    @property
    def looked_up_at(self) -> int:
        """Length of the answer for which the last draft was looked up."""
        return len(self._looked_up or ())

    def drafted(self, answer: Sequence[int]) -> int:
        """How many tokens after `answer` are predicted already."""
        base = len(answer)
        return len(self._predicted) - base if self._predicted[:base] == list(answer) else 0

    def step(self, answer: Sequence[int], size: int) -> bool:
        """Look up a draft; False if that was done already or nothing is found."""
        if self._looked_up == list(answer) or self.drafted(answer) >= size:
            return False
        self._memory.follow(answer)
        self._looked_up = list(answer)
        found = self._memory.after(size)
        self._predicted = [*answer, *up_to_end(found.ids, self._eos_ids)]
        self._chances = [1.0] * len(answer) + self._memory.chances(found) if self.tells_chances else []
        return self.drafted(answer) > 0

    def chances(self, answer: Sequence[int]) -> list[float]:
        """As ChainDrafter.chances."""
        return self._chances[len(answer) : len(self._predicted)] if self.drafted(answer) else []

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """The predicted tokens after `answer`, at most min(size, room)."""
        base = len(answer)
        ids = tuple(self._predicted[base : base + min(size, room)]) if self.drafted(answer) else ()
        chances = tuple(self.chances(answer)[: len(ids)])
        return Proposal(Draft(base, ids), ids, promise=promise_of(chances), chances=chances)

    @planned
    def chain(self, answer: Sequence[int], size: int) -> Plan[Proposal]:
        """Look up a draft and return it; a plan without forward passes."""
        yield from ()
        self.step(answer, size)
        return self.take(answer, size, size)


class BetterDrafter(ChainDrafter):
    """Drafts a chain with the model, or takes a lookup if similar lookups have lately been accepted further.

    The expected reach of a lookup depends on the length of its matched ending. It is learnt from every answer, whether
    the lookup was sent or not, since the target's tokens are there to compare with.
    """

    def __init__(self, model: DraftModel, memory: SuffixMemory) -> None:
        super().__init__(model)
        self._memory = memory
        self._reach = [RunningMean(_FIRST_REACH * matched) for matched in range(LONGEST_ENDING + 1)]
        self._own_reach = RunningMean(_FIRST_OWN_REACH)
        self._open: list[tuple[int, tuple[int, ...], RunningMean]] = []
        self._looked_up: list[int] | None = None
        self._is_own = True

    @planned
    def prefill(self, prompt: Prompt) -> Plan[None]:
        """As ChainDrafter.prefill."""
        yield from super().prefill.plan(prompt)
        self._memory.begin(prompt.ids, self._model.never_drafted)
        self._open, self._looked_up = [], None

    @planned
    def step(self, answer: Sequence[int], size: int) -> Plan[bool]:
        """As ChainDrafter.step. A lookup is complete at once; if it is short, the model continues it.

        `answer` must be verified, because acceptance is learnt from it.
        """
        if self._looked_up != list(answer):
            self._looked_up, self._is_own = list(answer), True
            self._memory.follow(answer)
            self._compare(answer)
            found = self._memory.after(min(size, self._model.room(len(answer))))
            if found.ids:
                self._open.append((len(answer), found.ids, self._reach[found.matched]))
            if found.ids and self._is_better(found):
                self._is_own, self.forwards = False, 0
                self._predicted, self._chances = list(answer), [1.0] * len(answer)
                ids = up_to_end(found.ids, self._model.eos_ids)
                self._append(ids, self._memory.chances(found)[: len(ids)] if self.tells_chances else ())
                return True
        return (yield from super().step.plan(answer, size))

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """As ChainDrafter.take."""
        proposal = super().take(answer, size, room)
        if self._is_own and proposal.guess:
            self._open.append((len(answer), proposal.guess, self._own_reach))
        return proposal

    def _is_better(self, found: Found) -> bool:
        return min(self._reach[found.matched].value, len(found.ids)) > self._own_reach.value

    def _compare(self, answer: Sequence[int]) -> None:
        """Compare earlier guesses with the target's tokens since then."""
        still = []
        for base, ids, reach in self._open:
            said = answer[base : base + len(ids)]
            right = next((i for i, token in enumerate(said) if token != ids[i]), len(said))
            if right < len(said) or right == len(ids):
                reach.add(right)
            else:
                still.append((base, ids, reach))
        self._open = still


def up_to_end(ids: Sequence[int], ends: Set[int]) -> tuple[int, ...]:
    """The ids up to and including the first one in `ends`."""
    for place, token in enumerate(ids):
        if token in ends:
            return tuple(ids[: place + 1])
    return tuple(ids)

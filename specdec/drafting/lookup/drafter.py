# SPDX-License-Identifier: Apache-2.0
"""Drafts that are looked up: alone, so that an edge needs no draft model, or beside one, the better of both each
round.

A guess is a guess, whatever makes it: the target decides every token, so none of this can change an answer.
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
"""Until it is known: tokens that a lookup reaches for every token its ending matched, and that the model's chains
reach. The latter is more than is likely: of the model only what is sent is learnt, so it must be tried before it is
passed over.
"""


class LookupDrafter:
    """Drafts what followed the last time. Its steps take no forward and no time worth measuring.

    forwards: of the last step: none. tells_chances: as of a ChainDrafter.
    """

    forwards = 0

    def __init__(self, memory: SuffixMemory, eos_ids: Set[int] = frozenset(), never: Set[int] = frozenset()) -> None:
        """eos_ids: a draft ends with one, as far as they are known here. never: tokens that must not be drafted."""
        self._memory = memory
        self._eos_ids = eos_ids
        self._never = never
        self.tells_chances = False
        self._predicted: list[int] = []
        self._chances: list[float] = []
        self._looked_up: list[int] | None = None

    @planned
    def prefill(self, prompt: Prompt) -> Plan[None]:
        """Take note of the prompt: a plan which has nothing to wait for."""
        yield from ()
        self._memory.begin(prompt.ids, self._never)
        self._predicted, self._chances, self._looked_up = [], [], None

    @property
    def looked_up_at(self) -> int:
        """Tokens of the answer behind which the last draft was looked up."""
        return len(self._looked_up or ())

    def drafted(self, answer: Sequence[int]) -> int:
        """How many tokens after `answer` are predicted already."""
        base = len(answer)
        return len(self._predicted) - base if self._predicted[:base] == list(answer) else 0

    def step(self, answer: Sequence[int], size: int) -> bool:
        """Look the draft up; False where that is done already, or nothing is found."""
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
        """Look a draft up and hand it out, as a plan without forwards."""
        yield from ()
        self.step(answer, size)
        return self.take(answer, size, size)


class BetterDrafter(ChainDrafter):
    """A chain of the draft model's, or what was looked up where lookups as good have lately been accepted further.

    How far a lookup reaches is judged by how long an ending matched, and learnt from every answer, whether it was sent
    or not: what the target said is there to compare with.
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
        """The same as of a chain."""
        yield from super().prefill.plan(prompt)
        self._memory.begin(prompt.ids, self._model.never_drafted)
        self._open, self._looked_up = [], None

    @planned
    def step(self, answer: Sequence[int], size: int) -> Plan[bool]:
        """The same as of a chain; a draft that is looked up is there at once, and goes on by the model if it is short.

        `answer` must be verified: what is learnt is learnt from it.
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
        """The same as of a chain."""
        proposal = super().take(answer, size, room)
        if self._is_own and proposal.guess:
            self._open.append((len(answer), proposal.guess, self._own_reach))
        return proposal

    def _is_better(self, found: Found) -> bool:
        return min(self._reach[found.matched].value, len(found.ids)) > self._own_reach.value

    def _compare(self, answer: Sequence[int]) -> None:
        """What was guessed, beside what the target has said since."""
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
    """The ids up to and with the first that ends an answer."""
    for place, token in enumerate(ids):
        if token in ends:
            return tuple(ids[: place + 1])
    return tuple(ids)

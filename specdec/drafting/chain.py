# SPDX-License-Identifier: Apache-2.0
"""Drafting a chain, one token a step: greedy, with shared noise, or sampled from q for rejection sampling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.draft import Draft, promise_of
from specdec.drafting.drafter import DraftModel, Proposal, read_both
from specdec.errors import ModelError
from specdec.models import Prompt
from specdec.models.plans import Plan, planned
from specdec.sampling import process_logits
from specdec.sampling.choice import chance_on_cpu, chances_of, likeliest_on_cpu
from specdec.sampling.rejection import draw_on_device
from specdec.sampling.uniform import Purpose, uniform

_RUN_WITH_CHANCES = 4
"""Tokens that are predicted at once where each may be the last: those behind it wait for the next draft."""
_ROUNDING = 1e-4
_REDRAWN = 1 << 32
"""Answers are shorter: numbers for a position that is drawn again are those of a place so far behind."""


class ChainDrafter:
    """Predicts token after token behind an answer; what turns out to be wrong is forgotten, the rest stays.

    at_once: a step may predict the whole draft: there is nothing else to do before it stands. Where tokens can stay
    on the device they are then read once a draft. forwards: of the last step. tells_chances: the draft's probability
    of each token is kept, for `chances`.
    """

    def __init__(self, model: DraftModel, sampled: bool = False) -> None:
        """sampled: draw from q and keep its rows, as rejection sampling needs; takes a temperature above 0."""
        self._model = model
        self._sampled = sampled
        self.at_once = False
        self.forwards = 0
        self.tells_chances = False
        self._predicted: list[int] = []
        self._chances: list[float] = []
        self._aside: list[int] = []
        self._aside_chances: list[float] = []
        self._drawn: list[tuple[Tensor, Tensor]] = []
        greedy = not sampled and model.options.temperature == 0.0
        self._reads_on_cpu = greedy and not model.stays_on_device
        self._redraws = 0
        self._rows: dict[int, Tensor] = {}

    @planned
    def prefill(self, prompt: Prompt) -> Plan[None]:
        """Feed the prompt. Raises ModelError where the draft model cannot take it."""
        yield from self._model.prefill.plan(prompt)
        self._predicted, self._aside = [], []
        self._chances, self._aside_chances = [], []
        self._rows = {}

    def drafted(self, answer: Sequence[int]) -> int:
        """How many tokens after `answer` are predicted already, be it aside."""
        return len(self._predicted) - len(answer) if self._goes_on(answer) else 0

    def chances(self, answer: Sequence[int]) -> list[float]:
        """The draft's probability of each token after `answer`; none where `tells_chances` is off."""
        return self._chances[len(answer) :] if self.tells_chances and self._goes_on(answer) else []

    def agrees(self, answer: Sequence[int]) -> bool:
        """Whether `answer` is part of what is predicted, or goes on behind it."""
        common = min(len(answer), len(self._predicted))
        return list(answer[:common]) == self._predicted[:common]

    def step_aside(self, answer: Sequence[int], size: int) -> bool:
        """The same behind another answer that may turn out to be the verified one; what is predicted stays. Not with
        sampled drafts, whose rows are kept by position.
        """
        assert not self._sampled, "the rows of both would have the same places"
        if answer and answer[-1] >= self._model.vocab_size:
            return False
        self._swap_aside()
        try:
            return self.step(answer, size)
        finally:
            self._swap_aside()

    def _swap_aside(self) -> None:
        self._predicted, self._aside = self._aside, self._predicted
        self._chances, self._aside_chances = self._aside_chances, self._chances

    @planned
    def step(self, answer: Sequence[int], size: int) -> Plan[bool]:
        """Predict one more token, and what a grammar makes of it; False where the draft ends: at its size, an EOS, or
        with the context.
        """
        base = len(answer)
        if not self._goes_on(answer):
            self._predicted, self._chances = list(answer), [1.0] * base
            self._redraws += 1
        predicted = self._predicted
        if len(predicted) >= base + size or self._model.room(len(predicted)) < 1:
            return False
        if predicted and predicted[-1] in self._model.eos_ids:
            return False
        self.forwards = 1
        if self.at_once and self._model.runs:
            yield from self._plan_run(min(base + size - len(predicted), self._model.room(len(predicted))))
            return True
        rows = yield from self._model.cursor.rows.plan(predicted)
        if self.tells_chances and self._reads_on_cpu:
            token, chance = likeliest_on_cpu(self._model.without_placeholders(rows))
            self._append([token], [chance])
        elif self.tells_chances:
            self._append(*self._read(self._pick(rows, len(predicted))))
        else:
            self._append([int(self._pick(rows, len(predicted)))])
        if self._model.options.grammar and predicted[-1] not in self._model.eos_ids:
            end = min(base + size, len(predicted) + self._model.room(len(predicted)))
            yield from self._plan_force(end - len(predicted))
        return True

    def _plan_run(self, count: int) -> Plan[None]:
        """Predict this many tokens, up to an end."""
        banned, told = None if self._sampled else self._model.banned, self.tells_chances
        count = min(count, _RUN_WITH_CHANCES) if told else count
        ids, chances = yield from self._model.cursor.run.plan(
            self._predicted, count, self._pick, banned, told
        )
        if told and not chances:
            chances = self._read(torch.tensor(ids))[1]
        self.forwards = count
        ends = [place for place, token in enumerate(ids) if token in self._model.eos_ids]
        kept = ends[0] + 1 if ends else count
        self._append(ids[:kept], chances[:kept])

    def _append(self, ids: Sequence[int], chances: Sequence[float] = ()) -> None:
        """Go on with these tokens. chances: of each; none: they are certain, or it was not asked for."""
        for chance in chances:
            if not 0.0 <= chance <= 1.0 + _ROUNDING:  # also where it is not a number
                raise ModelError(
                    f"the draft's chance of a token must be from 0 to 1, got {chance}: use a sound draft model"
                )
        self._predicted.extend(ids)
        self._chances.extend(chances or [1.0] * len(ids))

    def _plan_force(self, most: int) -> Plan[None]:
        """Predict the tokens that a grammar lets follow, and nothing else; no forward is needed for them."""
        forced = yield from self._model.cursor.forced.plan(self._predicted, most)
        for token in forced:
            if self._sampled:
                row = torch.zeros(self._model.vocab_size, device=self._model.device)
                row[token] = 1.0
                self._rows[len(self._predicted)] = row
            self._append([token])

    def take(self, answer: Sequence[int], size: int, room: int) -> Proposal:
        """The predicted tokens after `answer`, at most min(size, room)."""
        base = len(answer)
        count = min(size, room, self.drafted(answer))
        ids = tuple(self._predicted[base : base + count])
        chances = tuple(self.chances(answer)[:count])
        promise = promise_of(chances)
        if not self._sampled:
            return Proposal(Draft(base, ids), ids, promise=promise, chances=chances)
        self._rows = {position: row for position, row in self._rows.items() if position >= base}
        rows = [self._rows[base + index] for index in range(count)]
        q = torch.stack(rows) if rows else torch.empty(0, self._model.vocab_size)
        return Proposal(Draft(base, ids), ids, q, promise=promise, chances=chances)

    def part(self, answer: Sequence[int], start: int, end: int) -> Proposal:
        """The tokens from `start` to `end` of a draft after `answer`, and their rows; the drafter keeps both."""
        base = len(answer) + start
        ids = tuple(self._predicted[base : len(answer) + end])
        if not self._sampled:
            return Proposal(Draft(base, ids), ids)
        rows = [self._rows[place] for place in range(base, base + len(ids))]
        return Proposal(Draft(base, ids), ids, torch.stack(rows))

    def predicted(self, answer: Sequence[int]) -> list[int]:
        """The tokens that are drafted behind `answer`."""
        return self._predicted[len(answer) :] if self._goes_on(answer) else []

    @planned
    def chain(self, answer: Sequence[int], size: int) -> Plan[Proposal]:
        """Draft up to `size` tokens after `answer` at once; the chain ends early at an EOS token."""
        while (yield from self.step.plan(answer, size)):
            pass
        return self.take(answer, size, size)

    def _goes_on(self, answer: Sequence[int]) -> bool:
        """Whether what is predicted goes on behind `answer`, and its rows are still there; what was predicted aside
        takes its place where that does.

        The rows of drafts on their way are forgotten; a link lost then takes the answer back to before them.
        """
        base = len(answer)
        if self._predicted[:base] != list(answer):
            if not self._aside or self._aside[:base] != list(answer):
                return False
            self._swap_aside()
        return not self._sampled or base == len(self._predicted) or base in self._rows

    def _pick(self, rows: Tensor, position: int) -> Tensor:
        """The token int64 [1] of an answer position, from logits [1, vocab]."""
        row = self._model.without_placeholders(rows)
        options = self._model.options
        if not self._sampled:
            token = self._model.chooser.pick(row, position)
            if self.tells_chances:
                self._drawn.append((row, token))
            return token
        # The row is kept as it is drawn from, after every processor.
        q = process_logits(row, options)[0].exp()
        self._rows[position] = q
        place = position
        if (
            self.tells_chances
        ):  # what was refuted may have decided how long drafts are: it says nothing of this draw
            place += self._redraws * _REDRAWN
        token = draw_on_device(q, [uniform(options.seed, Purpose.DRAFT, place)])
        if self.tells_chances:
            self._drawn.append((q[None], token))
        return token

    def _read(self, picked: Tensor) -> tuple[list[int], list[float]]:
        """The tokens int64 [n] that were picked last, and their chances; a device is asked once for both."""
        drawn, self._drawn = self._drawn, []
        temperature = self._model.options.temperature
        if drawn[0][0].device.type == "cpu":
            ids = picked.tolist()
            if self._sampled:
                return ids, [float(q[0, token]) for (q, _), token in zip(drawn, ids, strict=True)]
            rows = zip(drawn, ids, strict=True)
            return ids, [chance_on_cpu(row, token, temperature) for (row, _), token in rows]
        found = [q[0, token] if self._sampled else chances_of(q, token, temperature) for q, token in drawn]
        tokens = torch.cat([token for _, token in drawn])
        (chances,), (ids,) = read_both(torch.cat(found)[None], tokens[None])
        return ids, chances

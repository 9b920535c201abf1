# SPDX-License-Identifier: Apache-2.0
"""Drafts a chain, one token per step: greedy, with shared noise, or sampled from q for rejection sampling."""

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
"""Most tokens predicted in one run if each may be the last of the draft; the tokens after it wait for the next draft.
"""
_ROUNDING = 1e-4
_REDRAWN = 1 << 32
"""Offset, beyond any answer length, that gives a position fresh random numbers when it is drawn again."""


class ChainDrafter:
    """Predicts tokens after an answer, one by one. Wrong predictions are dropped, the rest is kept.

    at_once: a step may predict the whole draft, because nothing else has to happen meanwhile. If tokens can stay on the
    device, they are then read once per draft. forwards: forward passes of the last step. tells_chances: keep the draft
    model's probability of each token, for `chances`.
    """

    def __init__(self, model: DraftModel, sampled: bool = False) -> None:
        """sampled: draw from q and keep its rows, for rejection sampling; needs a temperature above 0."""
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
        """Prefill the prompt. Raises ModelError if the draft model cannot take it."""
        yield from self._model.prefill.plan(prompt)
        self._predicted, self._aside = [], []
        self._chances, self._aside_chances = [], []
        self._rows = {}

    def drafted(self, answer: Sequence[int]) -> int:
        """How many tokens after `answer` are predicted already, side drafts included."""
        return len(self._predicted) - len(answer) if self._goes_on(answer) else 0

    def chances(self, answer: Sequence[int]) -> list[float]:
        """The draft model's probability of each predicted token after `answer`; empty if `tells_chances` is off."""
        return self._chances[len(answer) :] if self.tells_chances and self._goes_on(answer) else []

    def agrees(self, answer: Sequence[int]) -> bool:
        """Whether `answer` and the predicted sequence are equal up to the shorter one's end."""
        common = min(len(answer), len(self._predicted))
        return list(answer[:common]) == self._predicted[:common]

    def step_aside(self, answer: Sequence[int], size: int) -> bool:
        """As `step`, for a side draft after another possible answer; the main draft is kept. Not for sampled drafts,
        whose rows are stored by position.
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
        """Predict one more token and the tokens that a grammar forces after it. Returns False if the draft ends: at its
        size, at an EOS, or at the end of the context.
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
        """Predict `count` tokens in one run, and cut them after an EOS."""
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
        """Append tokens. chances: probability of each; empty if they are forced or chances are not kept."""
        for chance in chances:
            if not 0.0 <= chance <= 1.0 + _ROUNDING:  # also true for NaN
                raise ModelError(
                    f"the draft's chance of a token must be from 0 to 1, got {chance}: use a sound draft model"
                )
        self._predicted.extend(ids)
        self._chances.extend(chances or [1.0] * len(ids))

    def _plan_force(self, most: int) -> Plan[None]:
        """Append the tokens that a grammar forces; they need no forward pass."""
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
        """Tokens `start` to `end` (exclusive) of the draft after `answer`, with their rows; the drafter keeps both."""
        base = len(answer) + start
        ids = tuple(self._predicted[base : len(answer) + end])
        if not self._sampled:
            return Proposal(Draft(base, ids), ids)
        rows = [self._rows[place] for place in range(base, base + len(ids))]
        return Proposal(Draft(base, ids), ids, torch.stack(rows))

    def predicted(self, answer: Sequence[int]) -> list[int]:
        """The tokens predicted after `answer`."""
        return self._predicted[len(answer) :] if self._goes_on(answer) else []

    @planned
    def chain(self, answer: Sequence[int], size: int) -> Plan[Proposal]:
        """Draft up to `size` tokens after `answer` in one call; the chain ends early at an EOS token."""
        while (yield from self.step.plan(answer, size)):
            pass
        return self.take(answer, size, size)

    def _goes_on(self, answer: Sequence[int]) -> bool:
        """Whether the predicted sequence continues `answer` and its rows are still stored. If only the side draft
        continues it, that becomes the main draft.

        Rows of drafts in flight are dropped. After a lost link the answer may lie before them, so they are then
        missing.
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
        # The stored row is the distribution drawn from, after every processor.
        q = process_logits(row, options)[0].exp()
        self._rows[position] = q
        place = position
        if (
            self.tells_chances
        ):  # a refuted draw may have influenced draft lengths, so this draw must be independent of it
            place += self._redraws * _REDRAWN
        token = draw_on_device(q, [uniform(options.seed, Purpose.DRAFT, place)])
        if self.tells_chances:
            self._drawn.append((q[None], token))
        return token

    def _read(self, picked: Tensor) -> tuple[list[int], list[float]]:
        """The tokens picked last, int64 [n], and their chances, read from the device in one transfer."""
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

# SPDX-License-Identifier: Apache-2.0
"""Decides whether an answer that deviates from `ar` does so at a near-tie, which rounding may flip, or is wrong.

In float32 every greedy method gives the ids of `ar`. In float16 and bfloat16 a forward over one row and a forward over
several rows round differently. On llama.cpp so does a session whose cache cells are out of order. Two tokens with
nearly equal logits may then change places. Each such position is replayed on the target, which gives the margin between
the two tokens' logits. The numeric noise is the difference between logits of the same positions, computed one by one
and in one pass. A margin above twice the noise is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from specdec.draft import common_length
from specdec.models import LoadedModel, Prompt
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import AnswerRecord, Flip
from specnav.bench.records.summary import REFERENCE, common_answers, is_near_tie
from specnav.bench.runner.loop import prompt_of

SAMPLED = 4
"""Number of answers of `ar` on which noise is measured, in addition to the positions where answers diverge."""


@dataclass(frozen=True)
class Replayed:
    """flips: positions where answers diverge from `ar`. noise: largest difference of logits of the same position.

    close: number of tokens of `ar` that won by less than the noise, of `positions` positions examined.
    """

    flips: list[Flip]
    noise: float
    close: int
    positions: int


def both_ways(
    model: LoadedModel, prompt: Prompt, ids: Sequence[int], options: GenerationOptions
) -> tuple[Tensor, Tensor]:
    """Logits [len(ids) + 1, vocab] before each id and after the last: one position per pass, and all in one pass."""
    encoded = Prepared(model.encode(prompt))
    stepping = SessionCursor(model.new_session(), options)
    steps = [stepping.prefill(encoded)]
    steps += [stepping.rows(ids[:count])[0] for count in range(1, len(ids) + 1)]
    at_once = SessionCursor(model.new_session(), options)
    row = at_once.prefill(encoded)
    return torch.stack(steps), at_once.rows((), ids) if ids else row[None]


def noise_of(
    model: LoadedModel, prompt: Prompt, ids: Sequence[int], options: GenerationOptions
) -> tuple[Tensor, float]:
    """(logits [len(ids) + 1, vocab], one position per pass; largest difference to logits computed in other ways)."""
    steps, at_once = both_ways(model, prompt, ids, options)
    noise = float((steps - at_once).abs().max())
    if model.cache_bytes:
        noise = max(noise, float((steps - out_of_order(model, prompt, ids, options)).abs().max()))
    return steps, noise


def out_of_order(
    model: LoadedModel, prompt: Prompt, ids: Sequence[int], options: GenerationOptions
) -> Tensor:
    """Logits, one position per pass, where an evicted session has left free cells at the start of the shared cache."""
    encoded = Prepared(model.encode(prompt))
    other = model.new_session()
    SessionCursor(other, options).prefill(encoded)
    cursor = SessionCursor(model.new_session(), options)
    rows = [cursor.prefill(encoded)]
    other.evict()
    rows += [cursor.rows(ids[:count])[0] for count in range(1, len(ids) + 1)]
    return torch.stack(rows)


def find_flips(
    model: LoadedModel,
    questions: Sequence[Question],
    answers: Sequence[AnswerRecord],
    methods: Sequence[str],
    options: GenerationOptions,
) -> Replayed:
    """Replay the positions where answers of `methods` diverge from `ar`, and measure the numeric noise.

    Later turns of a diverged conversation have another prompt and are skipped.
    """
    by_name = {(question.source, question.question_id): question for question in questions}
    common = common_answers(answers, [REFERENCE, *methods])
    right = {record.key: record for record in common[REFERENCE]}
    noise, leads = 0.0, [torch.empty(0)]
    for record in common[REFERENCE][:SAMPLED]:
        steps, seen = noise_of(model, _prompt(model, by_name, right, record), record.ids, options)
        noise = max(noise, seen)
        best = steps.topk(2, dim=-1).values
        leads.append((best[:, 0] - best[:, 1]).cpu())
    flips = []
    for method in methods:
        parted: set[tuple[str, str]] = set()
        for record in sorted(common[method], key=lambda one: one.turn):
            expected = right.get(record.key)
            if expected is None or record.ids == expected.ids or record.key[:2] in parted:
                continue
            parted.add(record.key[:2])
            prompt = _prompt(model, by_name, right, record)
            margin, seen = margin_of(model, prompt, expected.ids, record.ids, options)
            noise = max(noise, seen)
            flips.append(Flip(method, *record.key, common_length(expected.ids, record.ids), margin))
    lead = torch.cat(leads)
    return Replayed(flips, noise, int((lead < noise).sum()), lead.numel())


def margin_of(
    model: LoadedModel, prompt: Prompt, right: Sequence[int], other: Sequence[int], options: GenerationOptions
) -> tuple[float, float]:
    """(margin between both tokens' logits where two answers diverge, numeric noise up to that position)."""
    place = common_length(right, other)
    steps, noise = noise_of(model, prompt, right[:place], options)
    margin = abs(_logit(model, steps[-1], right, place) - _logit(model, steps[-1], other, place))
    return margin, noise


@dataclass
class NearTies:
    """Distinguishes near-ties from errors among answers to a few prompts. right: the target's own answer to each."""

    model: LoadedModel
    prompts: Sequence[Prompt]
    right: Sequence[Sequence[int]]
    options: GenerationOptions
    noise: float = 0.0
    _margins: dict[tuple[int, tuple[int, ...]], float] = field(default_factory=dict)

    def count(self, answers: Sequence[tuple[int, tuple[int, ...]]]) -> int:
        """How many of these wrong answers (index of the prompt, ids) diverge from the target's at a near-tie."""
        if not answers:
            return 0
        if not self.noise:
            for prompt, ids in list(zip(self.prompts, self.right, strict=True))[:SAMPLED]:
                self.noise = max(self.noise, noise_of(self.model, prompt, ids, self.options)[1])
        for index, ids in sorted(set(answers) - set(self._margins)):
            margin, seen = margin_of(self.model, self.prompts[index], self.right[index], ids, self.options)
            self._margins[index, ids] = margin
            self.noise = max(self.noise, seen)
        return sum(is_near_tie(self._margins[one], self.noise) for one in answers)


def _prompt(
    model: LoadedModel,
    questions: Mapping[tuple[str, str], Question],
    right: Mapping[tuple[str, str, int], AnswerRecord],
    record: AnswerRecord,
) -> Prompt:
    source, name, turn = record.key
    earlier = [right[source, name, number].ids for number in range(turn)]
    return prompt_of(model.tokenizer, questions[source, name], earlier)


def _logit(model: LoadedModel, row: Tensor, ids: Sequence[int], place: int) -> float:
    """Logit of the answer's token at `place`; after its end, of the likeliest EOS token."""
    if place < len(ids):
        return float(row[ids[place]])
    return max(float(row[token]) for token in model.eos_token_ids)

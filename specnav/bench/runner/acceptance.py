# SPDX-License-Identifier: Apache-2.0
"""Finds how strongly the target's logits must be disturbed for a requested acceptance on the questions of a run.

The target answers the questions once, and its logits at every position are kept. They determine, without another
forward pass, which tokens a draft would pick at any noise strength. From these follows every round of `sd`, because a
draft only matters after a correct prefix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.models import LoadedModel, Prompt
from specdec.models.local import answer_limit
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.sampling import Chooser, process_logits
from specdec.sampling.choice import Adjuster
from specdec.sampling.disturbed import MOST_STRENGTH, Disturbance
from specnav.bench.data.acceptance import WantedAcceptance, read_acceptance
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import AcceptanceRecord
from specnav.bench.runner.loop import prompt_of, seeded
from specnav.bench.settings import BenchConfig, generation_options
from specnav.results.errors import EvaluationError

MOST_NUMBERS = 1 << 26
"""Most logits that are kept (256 MB); calibration uses no further questions."""
_HALVINGS = 40

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TargetAnswer:
    """One answer of the target. rows: logits, float32 [n, vocab], from which the `picks`, EOS included, were chosen.

    limit: largest number of tokens of the answer. options: with the question's own seed.
    """

    prompt_ids: tuple[int, ...]
    rows: Tensor
    picks: tuple[int, ...]
    limit: int
    options: GenerationOptions


@torch.inference_mode()
def answer_with_logits(model: LoadedModel, prompt: Prompt, options: GenerationOptions) -> TargetAnswer:
    """Answer with the model alone, and keep its logits at every position. Raises ModelError."""
    encoded = model.encode(prompt)
    ids = encoded.ids.tolist()
    cursor = SessionCursor(model.new_session())
    limit = answer_limit(options, model.context_limit, len(ids))
    adjuster, chooser = _adjuster(model, ids, options), Chooser(options)
    row = cursor.prefill(Prepared(encoded))[None]
    rows: list[Tensor] = []
    picks: list[int] = []
    while True:
        rows.append(row[0].cpu())
        picks += chooser.choose(adjuster.chain(row, picks), len(picks))
        if len(picks) >= limit or picks[-1] in model.eos_token_ids:
            return TargetAnswer(tuple(ids), torch.stack(rows), tuple(picks), limit, options)
        row = cursor.rows(picks)


def _adjuster(
    model: LoadedModel, prompt_ids: Sequence[int], options: GenerationOptions, disturbance: Disturbance | None = None
) -> Adjuster:
    grammar = model.grammar(options.grammar)
    return Adjuster(options, prompt_ids, model.eos_token_ids, model.vocab_size, "cpu", grammar, disturbance)


def told_of(
    model: LoadedModel, questions: Sequence[Question], options: GenerationOptions, progress: Progress
) -> Iterator[tuple[Question, TargetAnswer]]:
    """The target's answers to every turn, until MOST_NUMBERS logits are kept. The model must not serve clients yet."""
    kept = 0
    for number, question in enumerate(questions, start=1):
        progress(f"answering with the target alone, question {number} of {len(questions)}")
        answers: list[list[int]] = []
        for _ in question.turns:
            told = answer_with_logits(model, prompt_of(model.tokenizer, question, answers), seeded(options, question))
            kept += told.rows.numel()
            if kept > MOST_NUMBERS and number > 1:
                return
            answers.append([token for token in told.picks if token not in model.eos_token_ids])
            yield question, told


def matches(model: LoadedModel, told: TargetAnswer, disturbance: Disturbance) -> list[bool]:
    """For every position, whether the draft picks the target's token after the target's own earlier tokens."""
    adjuster = _adjuster(model, told.prompt_ids, told.options, disturbance)
    drafted = Chooser(told.options).pick(adjuster.chain(told.rows, (), told.picks[:-1]), 0)
    return (drafted == torch.tensor(told.picks)).tolist()


def overlaps(model: LoadedModel, told: TargetAnswer, disturbance: Disturbance) -> list[float]:
    """Σ min(p, q) at every position: the probability that rejection sampling accepts the draft's token."""
    options, before = told.options, told.picks[:-1]
    p = process_logits(_adjuster(model, told.prompt_ids, options).chain(told.rows, (), before), options).exp()
    disturbed = _adjuster(model, told.prompt_ids, options, disturbance).chain(told.rows, (), before)
    return torch.minimum(p, process_logits(disturbed, options).exp()).sum(-1).tolist()


def rounds_of(right: Sequence[bool], ends: bool, gamma: int, limit: int) -> list[int]:
    """Tokens gained in each round of `sd`.

    The first draft is sent before the first token is known. That token comes with the reply to the prompt and counts
    for no round. A draft leaves room for the verdict's own token. An EOS is always the verdict's own token.

    Args:
        right: for every position, whether the draft picks the target's token.
        ends: whether the last token is an EOS.
        gamma: draft tokens per round.
        limit: largest number of tokens of the answer.
    """
    gained: list[int] = []
    known, total = 1, len(right)
    while known < total:
        base = known if gained else 0
        size = min(gamma, limit - known - 1 if gained else limit - 1)
        last = total - ends
        accepted = 0
        while accepted < size and base + accepted < last and right[base + accepted]:
            accepted += 1
        reached = min(base + accepted + 1, total)
        gained.append(max(0, reached - known))
        known = max(known, reached)
    return gained


@dataclass(frozen=True)
class CalibrationSet:
    """The answers on which noise strengths are tried."""

    model: LoadedModel
    told: Sequence[TargetAnswer]
    wanted: WantedAcceptance
    seed: int

    def value(self, strength: float) -> float:
        """The tau, or the alpha, of the draft at a noise strength."""
        disturbance = Disturbance(strength, self.seed)
        if self.wanted.kind == "alpha":
            sampled = self.told[0].options.temperature > 0
            shares: list[float] = [
                float(one)
                for told in self.told
                for one in (overlaps if sampled else matches)(self.model, told, disturbance)
            ]
            return sum(shares) / len(shares)
        gained = [
            one
            for told in self.told
            for one in rounds_of(
                matches(self.model, told, disturbance),
                told.picks[-1] in self.model.eos_token_ids,
                self.wanted.gamma,
                told.limit,
            )
        ]
        return sum(gained) / len(gained) if gained else 1.0


@torch.inference_mode()
def calibrate(
    model: LoadedModel, questions: Sequence[Question], options: GenerationOptions, wanted: WantedAcceptance, seed: int,
    progress: Progress,
) -> AcceptanceRecord:
    """Bisect the noise strength at which the model, drafting for itself, has the wanted acceptance. Deterministic.

    Args:
        model: the target's weights, undisturbed.
        questions: of the run.
        options: of the run.
        wanted: the requested acceptance.
        seed: of the noise.
        progress: called with a text about the progress.

    Raises:
        EvaluationError: for an acceptance above the target's own on these questions, or below that of pure noise.
    """  # fmt: skip
    asked = list(told_of(model, questions, options, progress))
    bench = CalibrationSet(model, [told for _, told in asked], wanted, seed)
    ceiling = bench.value(0.0)
    if wanted.value > ceiling + wanted.tolerance:
        longest = max(len(told.picks) for told in bench.told)
        because = f" (answers end after at most {longest} tokens, and their last drafts early)" * (wanted.kind == "tau")
        raise EvaluationError(
            f"acceptance {wanted} cannot be reached: the target drafting for itself reaches {ceiling:.3g} on these "
            f"questions{because}; ask for at most that"
        )
    progress(f"bisecting the strength of the disturbance for {wanted.words}")
    strength, achieved = bisect(bench.value, wanted.value)
    least = wanted.value + wanted.tolerance
    if achieved > least and (floor := bench.value(MOST_STRENGTH)) > least:
        raise EvaluationError(
            f"acceptance {wanted} cannot be reached: drafts of pure noise reach {floor:.3g} on these questions; "
            "ask for at least that"
        )
    entropies = _entropies(bench, Disturbance(strength, seed))
    return AcceptanceRecord(
        asked=str(wanted),
        words=wanted.words,
        gamma=wanted.gamma,
        strength=strength,
        seed=seed,
        achieved=achieved,
        tolerance=wanted.tolerance,
        ceiling=ceiling,
        positions=sum(len(told.picks) for told in bench.told),
        questions=len({(one.source, one.question_id) for one, _ in asked}),
        entropy_right=entropies[True],
        entropy_wrong=entropies[False],
    )


def bisect(value: Callable[[float], float], wanted: float) -> tuple[float, float]:
    """(strength, its value), with the value closest to `wanted` that is found; values fall as strength rises."""
    best = (0.0, value(0.0))
    if best[1] <= wanted:
        return best
    low, high = 0.0, 1.0
    while True:
        found = value(high)
        best = min(best, (high, found), key=lambda one: abs(one[1] - wanted))
        if found <= wanted or high >= MOST_STRENGTH:
            break
        low, high = high, min(4 * high, MOST_STRENGTH)
    for _ in range(_HALVINGS):
        if best[1] == wanted or high - low < 1e-6 * high:
            break
        middle = (low + high) / 2
        found = value(middle)
        best = min(best, (middle, found), key=lambda one: abs(one[1] - wanted))
        if found > wanted:
            low = middle
        else:
            high = middle
    return best


def _entropies(bench: CalibrationSet, disturbance: Disturbance) -> dict[bool, float | None]:
    """The target's mean entropy in nats where the draft is right (True) and wrong (False); None if it never is."""
    entropy = torch.cat([torch.distributions.Categorical(logits=told.rows).entropy() for told in bench.told])
    right = torch.tensor([one for told in bench.told for one in matches(bench.model, told, disturbance)])
    means = {is_right: float(entropy[right == is_right].mean()) for is_right in (True, False)}
    return {is_right: None if math.isnan(mean) else mean for is_right, mean in means.items()}


def find_acceptance(
    config: BenchConfig, target: LoadedModel, questions: Sequence[Question], say: Callable[[str], None]
) -> AcceptanceRecord:
    """Find the noise strength for the config's acceptance. The target is not paced meanwhile.

    Raises EvaluationError for an acceptance that cannot be reached.
    """
    wanted = read_acceptance(config.acceptance, config.gamma)
    pacer, target.runner.pacer = target.runner.pacer, None
    try:
        found = calibrate(target, questions, generation_options(config), wanted, config.seed, say)
    finally:
        target.runner.pacer = pacer
    say(found.line)
    return found


def disturbance_of(found: AcceptanceRecord | None) -> Disturbance | None:
    """The draft's disturbance; None if acceptance is not emulated."""
    return None if found is None else Disturbance(found.strength, found.seed)

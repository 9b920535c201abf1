# SPDX-License-Identifier: Apache-2.0
"""The figures of the model cards: loss on held-back files, tokens gained per round, and share of looping answers.

*τ* is the number of tokens gained per verification: the accepted draft tokens and the target's own. It is measured
without a link or a cache, because a greedy draft is accepted as long as it agrees with the target's text, so one pass
over that text is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from specnav.bench.data.questions import load_questions
from specnav.recipes.errors import TrainingError
from specnav.recipes.text.repeats import loops
from specnav.recipes.text.rows import OwnTexts
from specnav.results.errors import EvaluationError

BATCH = 32


@dataclass(frozen=True)
class PairFigures:
    """Figures on greedy answers. looping, ended: shares of the answers. mean_tokens: their mean length."""

    questions: int
    tau: float
    agreement: float
    looping: float
    ended: float
    mean_tokens: float


@torch.inference_mode()
def mean_loss(model, rows: Tensor) -> float:
    """Loss in nats per token over rows int64 [n, length], without the first token of each row."""
    total = 0.0
    for part in rows.to(model.device).split(BATCH):
        logits = model(input_ids=part[:, :-1], use_cache=False).logits.float()
        total += float(F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"))
    return total / (rows.shape[0] * (rows.shape[1] - 1))


def tokens_a_round(agrees: Sequence[bool], gamma: int) -> list[int]:
    """Tokens gained in each round of a greedy answer. agrees: for each token, whether it is the draft's likeliest."""
    gained, at = [], 0
    while at < len(agrees):
        stop = min(at + gamma, len(agrees) - 1)
        step = at
        while step < stop and agrees[step]:
            step += 1
        gained.append(step + 1 - at)
        at = step + 1
    return gained


@torch.inference_mode()
def agreements(draft, texts: OwnTexts) -> list[list[bool]]:
    """For every answer and token, whether it is the draft's likeliest, given the text before."""
    found = []
    for at in range(0, len(texts.ids), BATCH):
        ids = texts.ids[at : at + BATCH].to(draft.device)
        likeliest = draft(input_ids=ids[:, :-1], use_cache=False).logits.argmax(-1)
        same = (likeliest == ids[:, 1:]).cpu()
        for row, line in enumerate(same, start=at):
            found.append(line[texts.prompts[row] - 1 : texts.lengths[row] - 1].tolist())
    return found


def pair_figures(draft, texts: OwnTexts, gamma: int) -> PairFigures:
    """Measure a draft on the target's greedy `texts`."""
    agreed = agreements(draft, texts)
    rounds = [gained for answer in agreed for gained in tokens_a_round(answer, gamma)]
    tokens = [len(answer) for answer in agreed]
    answers = [texts.answer(row) for row in range(len(texts.ids))]
    end = int(draft.config.eos_token_id)
    return PairFigures(
        questions=len(answers),
        tau=sum(rounds) / len(rounds),
        agreement=sum(map(sum, agreed)) / sum(tokens),
        looping=sum(loops(answer.numpy()) for answer in answers) / len(answers),
        ended=sum(int(answer[-1]) == end for answer in answers) / len(answers),
        mean_tokens=sum(tokens) / len(tokens),
    )


def read_questions(file: Path) -> list[str]:
    """First turns of a question file (see `specnav.bench.data.questions`). Raises TrainingError."""
    try:
        return [question.turns[0] for question in load_questions([file])]
    except EvaluationError as error:
        raise TrainingError(str(error)) from error

# SPDX-License-Identifier: Apache-2.0
"""Measures how well a draft predicts a target: τ and agreement on the target's greedy answers, one pass per answer.

A greedy draft is accepted as long as it agrees with the target's answer, so no link and no cache are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specnav.recipes.drafts.network import DraftNetwork, Progress
from specnav.recipes.samples import ExitSample

TOGETHER = 16


@dataclass(frozen=True)
class DraftFigures:
    """Figures on greedy answers. answers, tokens: how many were measured. tau: tokens gained per verification at γ,
    including the target's own. agreement: share of tokens that are the draft's likeliest.
    """

    answers: int
    tokens: int
    tau: float
    agreement: float


@dataclass(frozen=True)
class SampledFigures:
    """Figures at temperature 1, on texts that the target sampled.

    entropy: of the target's distribution, nats per token. overlap: mean sum of min(p, q), the probability that a
    sampled draft token is accepted. again: mean sum of p², the probability that the target samples the same token a
    second time with other random numbers.
    """

    tokens: int
    entropy: float
    overlap: float
    again: float


@torch.inference_mode()
def draft_figures(
    draft: DraftNetwork,
    texts: Sequence[ExitSample],
    gamma: int,
    progress: Progress = lambda done, total: None,
) -> DraftFigures:
    """Measure a draft on greedy texts of the target."""
    gained: list[int] = []
    tokens = right = done = 0
    for part in _grouped(texts):
        rows = draft.rows(part, max(_length(draft, text) for text in part))
        logits = draft.logits(*(_but_last(rows.ids), _but_last(rows.positions), rows.features))
        same = logits.argmax(-1).cpu() == rows.ids[:, 1:]
        for line, learn in zip(same, rows.learn[:, 1:].bool().cpu(), strict=True):
            agreed = line[learn].tolist()
            gained += tokens_a_round(agreed, gamma)
            tokens, right = tokens + len(agreed), right + sum(agreed)
        done += len(part)
        progress(done, len(texts))
    return DraftFigures(len(texts), tokens, sum(gained) / max(len(gained), 1), right / max(tokens, 1))


def checkpoint_figures(draft: DraftNetwork, texts: Sequence[ExitSample], gamma: int) -> dict[str, float]:
    """What a training notes at a checkpoint, for the acceptance curve."""
    figures = draft_figures(draft, texts, gamma)
    return {"tau": figures.tau, "agreement": figures.agreement}


@torch.inference_mode()
def sampled_figures(draft: DraftNetwork, target: DraftNetwork, texts: Sequence[ExitSample]) -> SampledFigures:
    """Measure a draft on texts that the target sampled at temperature 1."""
    sums = torch.zeros(3, dtype=torch.float64)
    tokens = 0
    for part in _grouped(texts):
        length = max(_length(draft, text) for text in part)
        rows, others = draft.rows(part, length), target.rows(part, length)
        ids, positions = _but_last(rows.ids), _but_last(rows.positions)
        learn = rows.learn[:, 1:].bool()
        log_p = target.logits(ids, positions, others.features).log_softmax(-1)[learn]
        q, p = draft.logits(ids, positions, rows.features).softmax(-1)[learn], log_p.exp()
        measured = torch.stack([-(p * log_p).sum(), torch.minimum(p, q).sum(), (p * p).sum()])
        sums += measured.double().cpu()
        tokens += int(learn.sum())
    entropy, overlap, again = (sums / max(tokens, 1)).tolist()
    return SampledFigures(tokens, entropy, overlap, again)


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


def _grouped(texts: Sequence[ExitSample]) -> Iterator[list[ExitSample]]:
    """Batches of texts with similar length."""
    order = sorted(texts, key=lambda text: len(text.ids))
    for at in range(0, len(order), TOGETHER):
        yield order[at : at + TOGETHER]


def _length(network: DraftNetwork, text: ExitSample) -> int:
    return int(network.encode(text).ids.shape[0])


def _but_last(rows: Tensor) -> Tensor:
    return rows[..., :-1]

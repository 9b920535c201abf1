# SPDX-License-Identifier: Apache-2.0
"""The figures of the model cards: loss on held-back files, tokens gained per round, and share of looping answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specnav.recipes.drafts.figures import draft_figures
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.samples import ExitSample
from specnav.recipes.text.repeats import loops

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


def pair_figures(draft: DraftNetwork, texts: Sequence[ExitSample], gamma: int) -> PairFigures:
    """Measure a draft on the target's greedy `texts`."""
    found, ends = draft_figures(draft, texts, gamma), draft.loaded.eos_token_ids
    return PairFigures(
        questions=len(texts),
        tau=found.tau,
        agreement=found.agreement,
        looping=sum(loops(np.array(text.ids[text.start :])) for text in texts) / len(texts),
        ended=sum(text.ids[-1] in ends for text in texts) / len(texts),
        mean_tokens=found.tokens / len(texts),
    )

# SPDX-License-Identifier: Apache-2.0
"""Measures how often exits agree with the final exit, on held-back samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.verifying.exits import ExitAdapters, Exits, best
from specnav.recipes.exits.task import all_rows
from specnav.recipes.samples import ExitSample


@dataclass(frozen=True)
class ExitFigures:
    """Agreement of exits with the final exit.

    tokens: number of measured tokens. agreement: by layer, the share of tokens for which the exit's likeliest token is
    the final exit's. untrained: the agreement of the model's own head on that layer without an adapter. sure: by layer,
    the agreement on the half of the tokens with the highest confidence. any_exit: share of tokens for which at least
    one exit is right. first: mean number (from 1) of the first exit that is right, if any is.
    """

    tokens: int
    agreement: dict[int, float]
    untrained: dict[int, float]
    sure: dict[int, float]
    any_exit: float
    first: float


@torch.inference_mode()
def exit_figures(
    exits: Exits,
    samples: Sequence[ExitSample],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ExitFigures:
    """Measure exits on whole samples."""
    model, layers = exits.model, exits.layers
    plain = Exits(model, ExitAdapters(len(layers), model.runner.hidden_size, 1), layers)
    right: list[Tensor] = []
    before: list[Tensor] = []
    confidence: list[Tensor] = []
    for done, sample in enumerate(samples, start=1):
        hidden, last = all_rows(sample, model, layers)
        said = model.runner.logits(last).argmax(-1)
        guesses = [best(exits.logits(layer, hidden[slot])) for slot, layer in enumerate(layers)]
        right.append(torch.stack([token == said for token, _ in guesses]))
        confidence.append(torch.stack([sure for _, sure in guesses]))
        before.append(
            torch.stack(
                [plain.logits(layer, hidden[slot]).argmax(-1) == said for slot, layer in enumerate(layers)]
            )
        )
        progress(done, len(samples))
    hits, trust = torch.cat(right, 1), torch.cat(confidence, 1)
    anywhere = hits.any(0)
    trusted = trust >= trust.median(1, keepdim=True).values
    return ExitFigures(
        tokens=hits.shape[1],
        agreement=_shares(layers, hits),
        untrained=_shares(layers, torch.cat(before, 1)),
        sure={layer: float(hits[slot][trusted[slot]].float().mean()) for slot, layer in enumerate(layers)},
        any_exit=float(anywhere.float().mean()),
        first=float(hits.int().argmax(0)[anywhere].float().mean()) + 1 if bool(anywhere.any()) else 0.0,
    )


def _shares(layers: Sequence[int], hits: Tensor) -> dict[int, float]:
    return {layer: float(hits[slot].float().mean()) for slot, layer in enumerate(layers)}

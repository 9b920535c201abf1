# SPDX-License-Identifier: Apache-2.0
"""Selects part of a vocabulary for a training step: the likely tokens of a batch, and random others."""

from __future__ import annotations

import torch
from torch import Tensor

from specnav.recipes.errors import TrainingError


def some_tokens(
    likely: Tensor, chances: Tensor, count: int, vocabulary: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Select `count` tokens: the likely ones of a batch, filled up at random.

    A head over 49,152 tokens costs twice as much as the three layers below it, but a batch needs only some thousands of
    these tokens. If the likely tokens are too many, only the first columns of `likely` and `chances` are used.

    Args:
        likely: int64 [rows, top], likeliest first.
        chances: float [rows, top], their log-probabilities.
        count: tokens to select.
        vocabulary: number of tokens.
        generator: of the random choice.

    Returns:
        (the selected tokens int64 [count], sorted; likely as indices into them; chances).

    Raises:
        TrainingError: if not even the likeliest tokens fit.
    """
    for top in range(likely.shape[1], 0, -1):
        known = likely[:, :top].unique()
        if len(known) <= count:
            break
    else:
        raise TrainingError(f"a batch has {len(known)} different likeliest tokens: give a larger --tokens")
    others = torch.ones(vocabulary, dtype=torch.bool)
    others[known] = False
    drawn = others.nonzero()[:, 0]
    drawn = drawn[torch.randperm(len(drawn), generator=generator)[: count - len(known)]]
    among = torch.cat([known, drawn]).sort().values
    likely, chances = likely[:, :top], chances[:, :top]
    return among, torch.searchsorted(among, likely.contiguous()), chances

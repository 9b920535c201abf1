# SPDX-License-Identifier: Apache-2.0
"""A training step over part of a vocabulary: what is likely in a batch, and others at random."""

from __future__ import annotations

import torch
from torch import Tensor

from specnav.recipes.errors import TrainingError


def some_tokens(
    likely: Tensor, chances: Tensor, count: int, vocabulary: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """(among int64 [count] in rising order, likely counted in them, chances): a part of the vocabulary with what is
    likely in a batch, filled up at random. What is likely fits in whole, or as far as its likeliest columns do.

    A head over 49,152 tokens costs twice the three layers below it; of those tokens a batch needs some thousands.
    """
    for top in range(likely.shape[1], 0, -1):
        known = likely[:, :top].unique()
        if len(known) <= count:
            break
    else:
        raise TrainingError(f"a batch has {len(known)} tokens that are likeliest somewhere: give a larger --tokens")
    others = torch.ones(vocabulary, dtype=torch.bool)
    others[known] = False
    drawn = others.nonzero()[:, 0]
    drawn = drawn[torch.randperm(len(drawn), generator=generator)[: count - len(known)]]
    among = torch.cat([known, drawn]).sort().values
    likely, chances = likely[:, :top], chances[:, :top]
    return among, torch.searchsorted(among, likely.contiguous()), chances

# SPDX-License-Identifier: Apache-2.0
"""Packs several texts into one row, each attending only to itself; half-empty rows would take twice the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specnav.recipes.samples import ExitSample


@dataclass(frozen=True)
class Packed:
    """Packed texts. samples: in the order of `where`. ids, positions: int64 [rows, length].

    sees: attention mask, bool [rows, 1, length, length]. where: int64 [n], flat positions whose next token is learnt,
    text by text.
    """

    samples: list[ExitSample]
    ids: Tensor
    positions: Tensor
    sees: Tensor
    where: Tensor


def pack(draw: Callable[[], ExitSample], rows: int, length: int) -> Packed:
    """Fill rows with texts from `draw`, of at most `length` ids each. Positions begin at 0 in each text."""
    ids, positions = (torch.zeros(rows, length, dtype=torch.int64) for _ in range(2))
    text = torch.full((rows, length), -1)
    samples: list[ExitSample] = []
    where: list[Tensor] = []
    waiting = draw()
    for row in range(rows):
        at = 0
        while at + len(waiting.ids) - 1 <= length:
            count = len(waiting.ids) - 1  # nothing is predicted after the last token
            place = slice(at, at + count)
            ids[row, place] = torch.tensor(waiting.ids[:-1])
            positions[row, place] = torch.arange(count)
            text[row, place] = len(samples)
            first = max(waiting.start, 1) - 1
            where.append(row * length + at + torch.arange(first, count))
            samples.append(waiting)
            at += count
            waiting = draw()
    return Packed(samples, ids, positions, _sees(text), torch.cat(where))


def _sees(text: Tensor) -> Tensor:
    """Mask bool [rows, 1, length, length]: causal, within the same text; empty positions see only themselves."""
    length = text.shape[1]
    same = text[:, None, :].eq(text[:, :, None]) & torch.ones(length, length, dtype=torch.bool).tril()
    return (same & text.ge(0)[:, None, :] | torch.eye(length, dtype=torch.bool))[:, None]


def of_size(places: Tensor, parts: Sequence[Tensor], size: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """(places, *parts, weights float32), all of length `size`: padded with weight 0, or with random entries dropped.

    places: [n]. parts: each [n, …].
    """
    count = places.shape[0]
    if count > size:
        kept = torch.randperm(count, generator=generator)[:size]
        return (places[kept], *(part[kept] for part in parts), torch.ones(size))
    filler = torch.zeros(size - count, dtype=torch.int64)
    chosen = torch.cat([torch.arange(count), filler])
    weights = torch.cat([torch.ones(count), torch.zeros(size - count)])
    return (places[chosen], *(part[chosen] for part in parts), weights)

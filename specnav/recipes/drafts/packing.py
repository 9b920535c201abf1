# SPDX-License-Identifier: Apache-2.0
"""Packs several texts into one row, each attending only to itself; half-empty rows would take twice the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specnav.recipes.samples import ExitSample


@dataclass(frozen=True)
class PackedRows:
    """Texts packed into rows.

    ids, positions: int32 [rows, length]. text: int32 [rows, length], the number of the text in the row, -1 for empty
    positions. learn: bool [rows, length], whether the next token is learnt.
    """

    ids: Tensor
    positions: Tensor
    text: Tensor
    learn: Tensor


def pack(draw: Callable[[], ExitSample], rows: int, length: int) -> tuple[list[ExitSample], PackedRows]:
    """Fill rows with texts from `draw`, of at most `length` ids each; also returns the texts, in their order."""
    held: list[list[ExitSample]] = []
    waiting = draw()
    for _ in range(rows):
        row, room = [], length
        while (count := len(waiting.ids) - 1) <= room:
            row.append(waiting)
            room -= count
            waiting = draw()
        held.append(row)
    return [text for row in held for text in row], _as_tensors(held, length)


def pack_all(texts: Sequence[ExitSample], length: int) -> PackedRows:
    """Pack texts of at most `length` + 1 ids into few rows: longest first, each into the fullest row with room."""
    rows: list[list[ExitSample]] = []
    room: list[list[int]] = [[] for _ in range(length + 1)]
    for text in sorted(texts, key=lambda one: -len(one.ids)):
        count = len(text.ids) - 1
        free = next((free for free in range(count, length) if room[free]), None)
        if free is None:
            rows.append([])
            row, free = len(rows) - 1, length
        else:
            row = room[free].pop()
        rows[row].append(text)
        room[free - count].append(row)
    return _as_tensors(rows, length)


def _as_tensors(rows: Sequence[Sequence[ExitSample]], length: int) -> PackedRows:
    """Rows of texts as tensors. A text's last token is left out, because nothing is predicted after it."""
    ids, positions, number = (torch.zeros(len(rows), length, dtype=torch.int32) for _ in range(3))
    number.fill_(-1)
    learn = torch.zeros(len(rows), length, dtype=torch.bool)
    for row, held in enumerate(rows):
        at = 0
        for which, text in enumerate(held):
            count = len(text.ids) - 1
            place = slice(at, at + count)
            ids[row, place] = torch.tensor(text.ids[:-1], dtype=torch.int32)
            positions[row, place] = torch.arange(count, dtype=torch.int32)
            number[row, place] = which
            learn[row, at + max(text.start, 1) - 1 : at + count] = True
            at += count
    return PackedRows(ids, positions, number, learn)


def within_texts(text: Tensor) -> Tensor:
    """Attention mask bool [rows, 1, length, length] of `PackedRows.text`: causal, within the same text; empty positions
    see one another.
    """
    length = text.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=text.device).tril()
    return (text[:, None, :].eq(text[:, :, None]) & before)[:, None]


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

# SPDX-License-Identifier: Apache-2.0
"""Rotary positions of Qwen2-VL prompts (m-rope), as pure functions.

A text token takes one position for all three axes; an image takes a (time, height, width) grid and then
the text goes on from the largest position used. Positions belong to a session, never to the model object
.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Grid = tuple[int, int, int]


def image_token_count(grid: Grid, merge: int) -> int:
    """How many placeholder tokens an image of `grid` = (t, h, w) patches takes after `merge` x `merge`
    merging.
    """
    t, h, w = grid
    return t * (h // merge) * (w // merge)


def expand_image_pads(ids: Sequence[int], pad_id: int, grids: Sequence[Grid], merge: int) -> list[int]:
    """Replace every single image placeholder by as many as its image needs.

    Raises ValueError when the number of placeholders and of images differ.
    """
    pads = sum(1 for token in ids if token == pad_id)
    if pads != len(grids):
        raise ValueError(f"{pads} image placeholders but {len(grids)} images")
    remaining = iter(grids)
    expanded: list[int] = []
    for token in ids:
        if token == pad_id:
            expanded.extend([pad_id] * image_token_count(next(remaining), merge))
        else:
            expanded.append(token)
    return expanded


def picture_starts(ids: Sequence[int], pad_id: int, grids: Sequence[Grid], merge: int) -> tuple[int, ...]:
    """Where each image begins in the expanded ids. ids: one placeholder an image."""
    starts: list[int] = []
    shift = 0
    for index, token in enumerate(ids):
        if token == pad_id:
            starts.append(index + shift)
            shift += image_token_count(grids[len(starts) - 1], merge) - 1
    return tuple(starts)


def mrope_positions(
    ids: Sequence[int], pad_id: int, grids: Sequence[Grid], merge: int
) -> tuple[torch.Tensor, int]:
    """Positions of an expanded prompt and the delta of what follows it.

    Returns (positions int64 [3, len(ids)], delta): the token at index i after the prompt has position i +
    delta on all three axes. Equal to transformers' `get_rope_index` for images.
    """
    parts: list[torch.Tensor] = []
    remaining = iter(grids)
    index = 0
    position = 0
    while index < len(ids):
        if ids[index] == pad_id:
            t, h, w = next(remaining)
            h, w = h // merge, w // merge
            grid = torch.meshgrid(torch.arange(t), torch.arange(h), torch.arange(w), indexing="ij")
            parts.append(torch.stack(grid).reshape(3, -1) + position)
            index += t * h * w
            position += max(h, w)
        else:
            start = index
            while index < len(ids) and ids[index] != pad_id:
                index += 1
            count = index - start
            parts.append((torch.arange(count) + position).expand(3, -1))
            position += count
    if not parts:
        return torch.zeros(3, 0, dtype=torch.long), 0
    positions = torch.cat(parts, dim=1)
    return positions, int(positions.max()) + 1 - len(ids)

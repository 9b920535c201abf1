# SPDX-License-Identifier: Apache-2.0
"""Rotary positions of Qwen2-VL prompts (m-rope), as pure functions.

A text token has the same position on all three axes. An image takes a (time, height, width) grid, and the text
continues after the largest position used. Positions belong to a session, never to the model object.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

Grid = tuple[int, int, int]


def image_token_count(grid: Grid, merge: int) -> int:
    """Placeholder tokens of an image with `grid` = (t, h, w) patches, after merging `merge` x `merge` patches."""
    t, h, w = grid
    return t * (h // merge) * (w // merge)


def expand_image_pads(
    ids: Sequence[int], pad_id: int, grids: Sequence[Grid], merge: int
) -> tuple[list[int], tuple[int, ...]]:
    """Repeat each image placeholder as often as its image has tokens; returns the ids and where each image begins.

    Raises ValueError if the numbers of placeholders and images differ.
    """
    pads = sum(1 for token in ids if token == pad_id)
    if pads != len(grids):
        raise ValueError(f"{pads} image placeholders but {len(grids)} images")
    expanded: list[int] = []
    starts: list[int] = []
    for token in ids:
        if token == pad_id:
            grid = grids[len(starts)]
            starts.append(len(expanded))
            expanded.extend([pad_id] * image_token_count(grid, merge))
        else:
            expanded.append(token)
    return expanded, tuple(starts)


def mrope_positions(
    ids: Sequence[int], pad_id: int, grids: Sequence[Grid], merge: int
) -> tuple[torch.Tensor, int]:
    """Positions of an expanded prompt, and the position offset after it.

    Returns (positions int64 [3, len(ids)], delta): a token at index i after the prompt has position i + delta on all
    three axes. Equal to transformers' `get_rope_index` for images.
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

"""Attention with one kernel whatever is seen: query heads that share a key head are folded into rows.

So keys and values need no copies, and a mask is a table that is added to the scores. On a CPU nothing is quicker.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.attention.segment import Segment, reach, sees


class FoldedSight(NamedTuple):
    """The slots from `first` on, as far as `mask` lets rows see them.

    mask: [groups * rows, slots], added to scores; None: all of them, or, where `causal`, what stands before a row.
    """

    first: int
    mask: Tensor | None
    causal: bool = False


class Folded:
    """Attention of a model with so many query heads to a key head."""

    def __init__(self, groups: int, dtype: torch.dtype, device: torch.device, scale: float | None) -> None:
        self._groups = groups
        self._dtype = dtype
        self._device = device
        self._scale = scale

    def sight(self, segment: Segment, window: int) -> FoldedSight:
        """What a segment's rows see in layers of a window, 0 for all."""
        first, shared = reach(segment, window)
        if segment.tree is None and segment.rows == 1:
            return FoldedSight(first, None)
        if segment.tree is None and not segment.past and not shared:
            return FoldedSight(0, None, causal=True)
        return FoldedSight(first, self._mask(sees(segment, window, first, self._device)))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: FoldedSight) -> Tensor:
        """query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim]."""
        if sight.causal:
            return attend_causal(query, keys, values, self._scale)
        if sight.first:
            keys, values = keys[:, sight.first :], values[:, sight.first :]
        rows = query.shape[0]
        folded = fold(query, keys.shape[0])
        attended = F.scaled_dot_product_attention(
            folded[None], keys[None], values[None], attn_mask=sight.mask, scale=self._scale
        )
        return unfold(attended[0], rows)

    def _mask(self, seen: Tensor) -> Tensor:
        added = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
        added.masked_fill_(~seen, float("-inf"))
        return added.repeat(self._groups, 1)


def attend_causal(query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
    """Rows that begin a sequence, and see what stands before them.

    query [rows, heads, dim], keys and values [kv_heads, rows, dim] -> [rows, heads * dim].
    """
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        is_causal=True,
        scale=scale,
        enable_gqa=query.shape[1] > keys.shape[0],
    )
    return attended[0].transpose(0, 1).reshape(query.shape[0], -1)


def fold(query: Tensor, kv_heads: int) -> Tensor:
    """[rows, heads, dim] -> [kv_heads, groups * rows, dim]."""
    rows, heads, dim = query.shape
    return query.view(rows, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3).reshape(kv_heads, -1, dim)


def unfold(attended: Tensor, rows: int) -> Tensor:
    """[kv_heads, groups * rows, dim] -> [rows, heads * dim]."""
    kv_heads, _, dim = attended.shape
    return attended.view(kv_heads, -1, rows, dim).permute(2, 0, 1, 3).reshape(rows, -1)

# SPDX-License-Identifier: Apache-2.0
"""The rows of one session in a pass, the cache slots that they see, and attention by one masked kernel.

Query heads that share a key head are folded into rows, so keys and values need no copies. The mask is added to the
scores. This is the fastest way on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Segment:
    """The rows of one session in a pass.

    Attributes:
        cache: float [layers, 2, kv_heads, capacity, head_dim], written at slots past .. past + rows.
        past: Slots filled before the pass.
        rows: Number of rows.
        tree: bool [rows, len(depths)] on the CPU: which nodes a node sees; None for a chain, whose rows see everything
            before them.
        depths: Depths of the tree nodes, which are the last tokens of past + rows; empty for a chain.
        positions: Rotary positions of the rows, on the host. In a prompt with pictures: int64 [3, rows] on the device
            (m-rope).
    """

    cache: Any
    past: int
    rows: int
    tree: Tensor | None = None
    depths: tuple[int, ...] = ()
    positions: Any = ()

    @property
    def total(self) -> int:
        """Slots filled after the pass."""
        return self.past + self.rows

    @property
    def committed(self) -> int:
        """Slots before the chain of this pass, or before the tree. Without windows, all rows see them."""
        return self.past if self.tree is None else self.total - len(self.depths)


def reach(segment: Segment, window: int) -> tuple[int, int]:
    """The first slot that any row sees, and the first slot that all rows see. window: of the layers; 0: none."""
    if not window or segment.total <= window:
        return 0, 0
    low, high = segment.past, segment.total - 1
    if segment.tree is not None:
        own = segment.depths[-segment.rows :]
        low, high = segment.committed + min(own), segment.committed + max(own)
    return max(0, low + 1 - window), max(0, high + 1 - window)


def sees(segment: Segment, window: int, first: int, device: torch.device) -> Tensor:
    """The mask of the slots from `first` on: bool [rows, total - first]."""
    if not reach(segment, window)[1]:
        window = 0  # it cuts nothing off
    if segment.tree is None:
        seen = torch.ones(segment.rows, segment.total - first, dtype=torch.bool, device=device)
        seen.tril_(segment.past - first)
        if window:
            seen.triu_(segment.past - first + 1 - window)
        return seen
    behind = torch.ones(segment.rows, max(segment.committed - first, 0), dtype=torch.bool)
    seen = torch.cat([behind, segment.tree[:, max(first - segment.committed, 0) :]], dim=1)
    if window:
        at = torch.cat([torch.arange(segment.committed), segment.committed + torch.tensor(segment.depths)])
        seen &= at[segment.past :, None] - at[None, first:] < window
    return seen.to(device)


class FoldedSight(NamedTuple):
    """What rows see of the slots from `first` on.

    mask: [groups * rows, slots], added to scores; None: rows see all slots or, if `causal`, those before them.
    """

    first: int
    mask: Tensor | None
    causal: bool = False


class FoldedAttention:
    """Attention for a model with `groups` query heads per key head."""

    def __init__(self, groups: int, dtype: torch.dtype, device: torch.device, scale: float | None) -> None:
        self._groups = groups
        self._dtype = dtype
        self._device = device
        self._scale = scale

    def sight(self, segment: Segment, window: int) -> FoldedSight:
        """The mask of a segment for layers with a window (0: none); made once per pass for all these layers."""
        first, shared = reach(segment, window)
        if segment.tree is None and segment.rows == 1:
            return FoldedSight(first, None)
        if segment.tree is None and not segment.past and not shared:
            return FoldedSight(0, None, causal=True)
        return FoldedSight(first, self._mask(sees(segment, window, first, self._device)))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: FoldedSight) -> Tensor:
        """query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim]."""
        if sight.causal:
            return attend_whole(query, keys, values, self._scale, causal=True)
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


def attend_whole(
    query: Tensor, keys: Tensor, values: Tensor, scale: float | None, mask: Any = None, causal: bool = False
) -> Tensor:
    """Attention by the device's kernel without folding. mask: added to the scores, or torch's causal bias; causal: the
    rows begin a sequence.

    query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim].
    """
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=causal,
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

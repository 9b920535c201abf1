# SPDX-License-Identifier: Apache-2.0
"""Where the rows of one session stand in a pass, which slots of its cache they see, and how they look at them:
attention with one kernel whatever is seen. Query heads that share a key head are folded into rows.

So keys and values need no copies, and a mask is a table that is added to the scores. On a CPU nothing is quicker.
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

    cache: float [layers, 2, kv_heads, capacity, head_dim], written at slots past .. past + rows. depths: of the tree
    nodes that are the last tokens of past + rows; empty for a chain, whose rows see what stands before them.
    tree: bool [rows, len(depths)] on the CPU, which nodes a node sees; None for a chain. positions: rotary positions of
    the rows, on the host; int64 [3, rows], on the device, in a prompt with pictures (m-rope).
    """

    cache: Any
    past: int
    rows: int
    tree: Tensor | None = None
    depths: tuple[int, ...] = ()
    positions: Any = ()

    @property
    def total(self) -> int:
        """Slots that are filled after the pass."""
        return self.past + self.rows

    @property
    def committed(self) -> int:
        """Slots before the pass's chain, or before the tree: all rows see them, except for windows."""
        return self.past if self.tree is None else self.total - len(self.depths)


def reach(segment: Segment, window: int) -> tuple[int, int]:
    """(the first slot that any row sees, the first that all rows see), window: of the layers; 0: none."""
    if not window or segment.total <= window:
        return 0, 0
    low, high = segment.past, segment.total - 1
    if segment.tree is not None:
        own = segment.depths[-segment.rows :]
        low, high = segment.committed + min(own), segment.committed + max(own)
    return max(0, low + 1 - window), max(0, high + 1 - window)


def sees(segment: Segment, window: int, first: int, device: torch.device) -> Tensor:
    """Which slots from `first` on the rows see: bool [rows, total - first]."""
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
    """The slots from `first` on, as far as `mask` lets rows see them.

    mask: [groups * rows, slots], added to scores; None: all of them, or, where `causal`, what stands before a row.
    """

    first: int
    mask: Tensor | None
    causal: bool = False


class FoldedAttention:
    """Attention of a model with this many query heads to a key head."""

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

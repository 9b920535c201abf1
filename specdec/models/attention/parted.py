# SPDX-License-Identifier: Apache-2.0
"""Attention in two parts: slots that all rows see go through the device's kernel without a mask, the few others with
one.

A chain's rows are causal towards the lower right corner, which the kernel supports without a mask. The nodes of a tree
all see the committed slots, which are nearly all, and few of each other; the same holds for a chain's rows at the edges
of a window. The first part returns the log of its sum of exponentials. It then counts as one more key with that score,
so one softmax joins both parts. No mask is as long as the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from specdec.models.attention.segment import (
    FoldedAttention,
    FoldedSight,
    Segment,
    attend_whole,
    fold,
    reach,
    sees,
    unfold,
)


class PartedSight(NamedTuple):
    """What rows see of the slots from `first` on.

    shared: (first, end) of the slots that all rows see, for the kernel without a mask; None: the kernel takes all slots
    from `first` on, with `bias` as its causal mask. added: float32 [groups * rows, other slots], added to the scores of
    the other slots.
    """

    first: int
    bias: Any = None
    shared: tuple[int, int] | None = None
    added: Tensor | None = None


class PartedAttention:
    """Attention for a model with `groups` query heads per key head."""

    def __init__(self, groups: int, dtype: torch.dtype, device: torch.device, scale: float | None) -> None:
        self._groups = groups
        self._device = device
        self._scale = scale
        self._folded = FoldedAttention(groups, dtype, device, scale)

    def sight(self, segment: Segment, window: int) -> PartedSight | FoldedSight:
        """The mask of a segment for layers with a window (0: none). The beginning of a sequence, and rows with few
        common slots (long prompts with a window), are left to `FoldedAttention`.
        """
        first, low = reach(segment, window)
        if segment.tree is None and segment.rows == 1:
            return PartedSight(first)
        if segment.tree is None and not low and segment.past:
            return PartedSight(0, causal_lower_right(segment.rows, segment.total))
        if segment.tree is not None and not low and bool(segment.tree.all()):  # on the CPU: no sync
            return PartedSight(0)
        high = segment.committed
        others = low - first + segment.total - high
        if high - low < others:
            return self._folded.sight(segment, window)
        seen = sees(segment, window, first, self._device)
        rest = torch.cat([seen[:, : low - first], seen[:, high - first :]], dim=1)
        added = torch.zeros(rest.shape, device=self._device).masked_fill_(~rest, float("-inf"))
        return PartedSight(first, None, (low, high), added.repeat(self._groups, 1))

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: PartedSight | FoldedSight) -> Tensor:
        """query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim]."""
        if isinstance(sight, FoldedSight):
            return self._folded.attend(query, keys, values, sight)
        if sight.shared is None:
            keys, values = keys[:, sight.first :], values[:, sight.first :]
            return attend_whole(query, keys, values, self._scale, sight.bias)
        assert sight.added is not None
        low, high = sight.shared
        attended, score = attend_all(query, keys[:, low:high], values[:, low:high], self._scale)
        if sight.first < low:
            keys, values = (
                torch.cat([one[:, sight.first : low], one[:, high:]], dim=1) for one in (keys, values)
            )
        else:
            keys, values = keys[:, high:], values[:, high:]
        return join(query, keys, values, sight.added, attended, score, self._scale)


def join(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    added: Tensor,
    attended: Tensor,
    score: Tensor,
    scale: float | None,
) -> Tensor:
    """Extend the result of `attend_all` by a few more keys.

    Args:
        query: [rows, heads, dim].
        keys: [kv_heads, few, dim].
        values: [kv_heads, few, dim].
        added: float32 [groups * rows, few], added to the scores of these keys.
        attended: [kv_heads, groups * rows, dim], from `attend_all`.
        score: float32 [kv_heads, groups * rows], from `attend_all`.
        scale: Scale of scores; None: 1 / sqrt(dim).

    Returns:
        [rows, heads * dim], in the type of `query`.
    """
    rows, _, dim = query.shape
    folded = fold(query, keys.shape[0]).float()
    factor = dim**-0.5 if scale is None else scale
    scores = torch.baddbmm(added[None], folded, keys.float().transpose(1, 2), alpha=factor)
    weights = torch.cat([score[..., None], scores], dim=-1).softmax(-1)
    own = torch.bmm(weights[..., 1:], values.float())
    return unfold(torch.addcmul(own, attended.float(), weights[..., :1]), rows).to(query.dtype)


def attend_all(query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Attention of all rows to all keys. query [rows, heads, dim], keys and values [kv_heads, slots, dim].

    Returns (attended [kv_heads, groups * rows, dim], log-sum-exp of the scores, float32 [kv_heads, groups * rows]).
    """
    kv_heads, _, dim = keys.shape
    heads = query.transpose(0, 1)[None]
    if query.device.type == "cuda":
        attended, score, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            heads, keys[None], values[None], 0.0, False, False, scale=scale
        )
    else:
        attended, score, *_ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            heads, keys[None], values[None], 0.0, False, scale=scale
        )
    return attended[0].reshape(kv_heads, -1, dim), score[0].reshape(kv_heads, -1).float()

# SPDX-License-Identifier: Apache-2.0
"""Batch-invariant attention: a row's result does not depend on the other rows of the pass, nor on keys it cannot see.

Libraries choose kernels, and with them the order of summation, by shape; in half precision that can flip near-ties.
Here every product has one shape. Rows come in blocks, keys in chunks from the sequence's first key on, and masked keys
are added as zeros. (Idea: Thinking Machines, "Defeating nondeterminism in LLM inference", 2025.) Rows of a token tree
see keys in other slots than the same tokens in a chain, so nothing is guaranteed for them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.attention.segment import Segment, fold, sees, unfold

ROWS = 32
"""Rows per product: enough to verify a chain, and free on a memory-bound device."""
KEYS = 256
"""Keys per chunk."""


def in_blocks(product: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Make a product [n, in] -> [n, out] independent of n by computing ROWS rows at a time."""

    def blocked(rows: Tensor) -> Tensor:
        count = rows.shape[0]
        padded = F.pad(rows, (0, 0, 0, -count % ROWS))
        parts = [product(part) for part in torch.split(padded, ROWS)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[:count]

    return blocked


class InvariantAttention:
    """Batch-invariant Attention. The mask of a segment is bool [rows, slots]."""

    def __init__(self, device: torch.device, scale: float | None) -> None:
        self._device = device
        self._scale = scale

    def sight(self, segment: Segment, window: int) -> Tensor:
        """The mask from the sequence's first slot on, whatever the window."""
        return sees(segment, window, 0, self._device)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: Tensor) -> Tensor:
        """Attention computed in float32, over keys from the sequence's first slot on.

        query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim].
        """
        count = query.shape[0]
        spare, short = -count % ROWS, -keys.shape[1] % KEYS
        query = F.pad(query, (0, 0, 0, 0, 0, spare))
        # Padding rows must see something, or they yield NaN.
        sight = F.pad(F.pad(sight, (0, short)), (0, 0, 0, spare), value=True)
        keys, values = (F.pad(one, (0, 0, 0, short)).float() for one in (keys, values))
        parts = [
            _block(rows.float(), keys, values, visible, self._scale)
            for rows, visible in zip(torch.split(query, ROWS), torch.split(sight, ROWS), strict=True)
        ]
        return torch.cat(parts)[:count].to(query.dtype)


def _block(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float | None) -> Tensor:
    rows, heads, dim = query.shape
    kv_heads = keys.shape[0]
    folded = fold(query, kv_heads)
    hidden = ~seen.repeat(heads // kv_heads, 1)
    folded = folded * (dim**-0.5 if scale is None else scale)
    scores = [
        torch.bmm(folded, some.transpose(1, 2).contiguous()).masked_fill_(unseen, float("-inf"))
        for some, unseen in zip(torch.split(keys, KEYS, 1), torch.split(hidden, KEYS, 1), strict=True)
    ]
    highest = scores[0].amax(-1, keepdim=True)
    for some in scores[1:]:
        highest = torch.maximum(highest, some.amax(-1, keepdim=True))
    total = torch.zeros_like(highest)
    attended = torch.zeros_like(folded)
    for some, value in zip(scores, torch.split(values, KEYS, 1), strict=True):
        weights = torch.exp(some - highest)
        total = total + weights.sum(-1, keepdim=True)
        attended = attended + torch.bmm(weights, value.contiguous())
    return unfold(attended / total, rows)

# SPDX-License-Identifier: Apache-2.0
"""A row gets the same numbers whatever rows share its pass, and however many keys stand behind those it sees.

Kernels are chosen by shape and add up in an order that goes with it; in half precision that turns near-ties. Here every
product has one shape: rows come in blocks, keys in chunks that begin at the sequence's first, and what a row does not
see is added as zero. (The idea: Thinking Machines, "Defeating nondeterminism in LLM inference", 2025.) Rows of a token
tree see keys in other slots than the same tokens in a chain: for them nothing is promised.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.models.attention.segment import Segment, fold, sees, unfold

ROWS = 32
"""Of a product: a verification of a chain fits, and a device that is bound by its memory takes no longer for them."""
KEYS = 256
"""Of a chunk."""


def in_blocks(product: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A product [n, in] -> [n, out] whose rows do not depend on n: it is done with ROWS rows at a time."""

    def blocked(rows: Tensor) -> Tensor:
        count = rows.shape[0]
        padded = F.pad(rows, (0, 0, 0, -count % ROWS))
        parts = [product(part) for part in torch.split(padded, ROWS)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[:count]

    return blocked


class InvariantAttention:
    """As `attention_for` gives it; what a segment's rows see is a table bool [rows, slots]."""

    def __init__(self, device: torch.device, scale: float | None) -> None:
        self._device = device
        self._scale = scale

    def sight(self, segment: Segment, window: int) -> Tensor:
        """From the sequence's first slot on, whatever the window."""
        return sees(segment, window, 0, self._device)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: Tensor) -> Tensor:
        """See `attend` below."""
        return attend(query, keys, values, sight, self._scale)


def attend(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float | None) -> Tensor:
    """query [rows, heads, dim], keys and values [kv_heads, slots, dim] from the sequence's first slot on, seen bool
    [rows, slots] -> [rows, heads * dim]. Worked out in float32.
    """
    count = query.shape[0]
    spare, short = -count % ROWS, -keys.shape[1] % KEYS
    query = F.pad(query, (0, 0, 0, 0, 0, spare))
    seen = F.pad(
        F.pad(seen, (0, short)), (0, 0, 0, spare), value=True
    )  # rows that no caller wants see something
    keys, values = (F.pad(one, (0, 0, 0, short)).float() for one in (keys, values))
    parts = [
        _block(rows.float(), keys, values, visible, scale)
        for rows, visible in zip(torch.split(query, ROWS), torch.split(seen, ROWS), strict=True)
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

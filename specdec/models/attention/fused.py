"""Attention by the kernel that the device has for it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


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


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Rows behind others. mask: [groups * rows, slots], added to scores; None: all is seen.

    query [rows, heads, dim], keys and values [kv_heads, slots, dim] -> [rows, heads * dim].
    """
    rows, heads, dim = query.shape
    kv_heads = keys.shape[0]
    # Query heads that share a key head are folded into rows, so that keys and values need no copies.
    folded = query.view(rows, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3).reshape(1, kv_heads, -1, dim)
    attended = F.scaled_dot_product_attention(folded, keys[None], values[None], attn_mask=mask, scale=scale)
    attended = attended.view(kv_heads, heads // kv_heads, rows, dim).permute(2, 0, 1, 3)
    return attended.reshape(rows, -1)

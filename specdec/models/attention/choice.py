# SPDX-License-Identifier: Apache-2.0
"""Which way of attention a device and a number type take: the one place where that is decided."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from specdec.models.attention.invariant import InvariantAttention
from specdec.models.attention.segment import FoldedAttention, Segment

_FLASH_CAPABILITY = (8, 0)
_FLASH_DIM, _FLASH_STEP = 256, 8


class Attention(Protocol):
    """How rows of a segment look at its keys and values."""

    def sight(self, segment: Segment, window: int) -> Any:
        """What a segment's rows see in layers of a window, 0 for all; made once a pass for all these layers."""
        ...

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, sight: Any) -> Tensor:
        """query [rows, heads, dim], keys and values [kv_heads, slots, dim], the rows' own last -> [rows, heads *
        dim].
        """
        ...


def attention_for(
    groups: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    scale: float | None,
    deterministic: bool,
) -> Attention:
    """groups: query heads to a key head. scale: of scores; None: by the root of head_dim.

    A GPU with the flash kernel takes rows as they are and no long masks; a CPU is quicker with folded heads. What that
    kernel does not take (float32, older GPUs, odd widths) is folded as well.
    """
    if deterministic:
        return InvariantAttention(device, scale)
    if _has_flash(head_dim, dtype, device):
        from specdec.models.attention.parted import (
            PartedAttention,  # torch's causal masks bring its compiler along
        )

        return PartedAttention(groups, dtype, device, scale)
    return FoldedAttention(groups, dtype, device, scale)


def _has_flash(head_dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return False
    if head_dim > _FLASH_DIM or head_dim % _FLASH_STEP:
        return False
    built = torch.backends.cuda.is_flash_attention_available()
    return built and torch.cuda.get_device_capability(device) >= _FLASH_CAPABILITY

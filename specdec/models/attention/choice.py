# SPDX-License-Identifier: Apache-2.0
"""Selects the attention implementation for a device and number type."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch

from specdec.models.attention.invariant import InvariantAttention
from specdec.models.attention.segment import FoldedAttention

if TYPE_CHECKING:
    from specdec.models.attention.parted import PartedAttention

_FLASH_CAPABILITY = (8, 0)
_FLASH_DIM, _FLASH_STEP = 256, 8


Attention: TypeAlias = "FoldedAttention | InvariantAttention | PartedAttention"


def attention_for(
    groups: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    scale: float | None,
    deterministic: bool,
) -> Attention:
    """Select the attention for a model. groups: query heads per key head. scale: of scores; None: 1 / sqrt(head_dim).

    A GPU with the flash kernel needs neither folding nor long masks. A CPU is faster with folded heads. Cases that the
    flash kernel does not support (float32, older GPUs, odd widths) are folded as well.
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

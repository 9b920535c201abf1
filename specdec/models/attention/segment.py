"""Where the rows of one session stand in a pass, and which slots of its cache they see. Pure functions of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
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
        """Slots before the pass's chain, or before the tree: all rows see them, but for windows."""
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

# SPDX-License-Identifier: Apache-2.0
"""The adapters: two small matrices per exit, hidden + up(silu(down(norm(hidden)))).

The norm has no weight, because `down` would absorb it. The matrices of all exits are stored in two tensors, so that
rows of several layers can be computed in one product.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-12  # of norms, practically 0


class ExitAdapters(nn.Module):
    """down: float [exits, width, hidden_size]; up: float [exits, hidden_size, width].

    Initialised as the identity: an untrained exit is the model's own head on an early hidden state.
    """

    def __init__(
        self, exits: int, hidden_size: int, width: int, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.empty(exits, width, hidden_size, device=device))
        self.up = nn.Parameter(torch.zeros(exits, hidden_size, width, device=device))
        # Weights on the meta device are about to be replaced, and initialising them makes torch load its compiler.
        if not self.down.is_meta:
            nn.init.normal_(self.down, std=1 / math.sqrt(hidden_size))

    @property
    def width(self) -> int:
        """Size of the bottleneck between the two matrices."""
        return self.down.shape[1]

    def one(self, slot: int, hidden: Tensor) -> Tensor:
        """hidden [rows, hidden_size] of the slot's layer -> input of the final norm, of the same shape."""
        return adapt(hidden, self.down[slot], self.up[slot])


def adapt(hidden: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """One adapter. hidden [rows, hidden_size], down [width, hidden_size], up [hidden_size, width] -> shape of hidden.

    It uses the same operations as the target's layers, whose kernels are warm during a forward pass.
    """
    normed = F.rms_norm(hidden, (hidden.shape[-1],), eps=EPS)
    return hidden + F.linear(F.silu(F.linear(normed, down)), up)

# SPDX-License-Identifier: Apache-2.0
"""Muon for the hidden matrices, AdamW for everything else.

Muon (Jordan et al. 2024) replaces a matrix's momentum by the nearest orthogonal matrix. The step size here gives
updates the root mean square of AdamW's ("match_rms_adamw", arXiv 2502.16982). Matrices of one shape are batched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOMENTUM, WEIGHT_DECAY = 0.95, 0.02
PLAIN = ("embed", "head")
"""Matrices whose name contains one of these words are updated by AdamW."""
MUON_SCALE = 0.2
_NS = (3.4445, -4.7750, 2.0315)
_NS_STEPS = 5


def gradients_of(weights: Sequence[nn.Parameter]) -> list[Tensor]:
    """The gradients of weights; each weight must have one."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    assert len(gradients) == len(weights)
    return gradients


def orthogonalise(matrices: Tensor) -> Tensor:
    """Nearest (semi-)orthogonal matrices of float [n, rows, columns] by five Newton-Schulz steps in bfloat16."""
    a, b, c = _NS
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_NS_STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.transpose(1, 2) if tall else x).float()


class MuonAdamW:
    """Both optimisers with one `step`, for weights with gradients."""

    def __init__(self, model: nn.Module) -> None:
        groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        self._names: list[str] = []
        rest: list[nn.Parameter] = []
        for name, weight in model.named_parameters():
            if not weight.requires_grad:
                continue
            self._names.append(name)
            if weight.dim() == 2 and min(weight.shape) > 8 and not any(word in name for word in PLAIN):
                groups[tuple(weight.shape)].append(weight)
            else:
                rest.append(weight)
        self._groups = list(groups.values())
        self._momenta = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self._groups]
        self._adamw = torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """Update the weights with their current gradients."""
        for weights, momentum in zip(self._groups, self._momenta, strict=True):
            gradient = torch.stack(gradients_of(weights))
            momentum.lerp_(gradient, 1 - MOMENTUM)
            update = orthogonalise(gradient.lerp(momentum, MOMENTUM))
            scale = MUON_SCALE * max(weights[0].shape) ** 0.5 * lr
            for index, weight in enumerate(weights):
                weight.mul_(1 - lr * WEIGHT_DECAY).sub_(update[index], alpha=scale)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {"momenta": self._momenta, "adamw": self._adamw.state_dict(), "names": self._names}

    def load_state_dict(self, state: dict) -> None:
        """Restore a saved state of the same model. Raises ValueError for another model."""
        if state["names"] != self._names:
            raise ValueError("the optimiser state belongs to another model")
        for mine, saved in zip(self._momenta, state["momenta"], strict=True):
            mine.copy_(saved)
        self._adamw.load_state_dict(state["adamw"])

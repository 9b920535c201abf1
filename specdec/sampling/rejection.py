"""Speculative rejection sampling (Leviathan et al. 2023, Chen et al. 2023), as pure functions over tensors.

p is always the target's distribution and q the draft's, both AFTER every processor; q must be the very
distribution the draft tokens were sampled from. Uniform numbers come in as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rejection:
    """accepted: how many draft tokens stay. token: the recovered token, or the bonus token if all were
    accepted.
    """

    accepted: int
    token: int


def acceptance_probability(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q) of draft tokens, from their probabilities p and q; q is positive where sampled."""
    return torch.clamp(p / q, max=1.0)


def recovery_distribution(p: Tensor, q: Tensor) -> Tensor:
    """The distribution norm(max(0, p - q)) [vocab] to draw from after a rejection.

    Falls back to p where rounding leaves nothing of the difference (p == q): a rejection there has
    probability 0.
    """
    residual = torch.clamp(p.double() - q.double(), min=0.0)
    total = residual.sum()
    if not bool(total > 0.0):
        return p.double() / p.double().sum()
    return residual / total


def draw(distribution: Tensor, uniform: float) -> int:
    """The token where the cumulative distribution [vocab] passes `uniform` in [0, 1); never one of
    probability 0.
    """
    cumulative = distribution.double().cumsum(dim=-1)
    index = int(torch.searchsorted(cumulative, uniform * float(cumulative[-1]), right=True))
    if index >= distribution.shape[-1] or float(distribution[index]) <= 0.0:
        return int(torch.nonzero(distribution > 0)[-1])
    return index


def verify_chain(draft: list[int], q: Tensor, p: Tensor, uniforms: Tensor) -> Rejection:
    """Verify a chain of draft tokens.

    draft: k ids sampled from the rows of q. q: probabilities float [k, vocab]. p: probabilities float [k+1,
    vocab], the last row for the bonus token. uniforms: float64 [k+1] in [0, 1): one per acceptance, the last
    for the draw.
    """
    for index, token in enumerate(draft):
        chance = acceptance_probability(p[index, token].double(), q[index, token].double())
        if float(uniforms[index]) >= float(chance):
            return Rejection(index, draw(recovery_distribution(p[index], q[index]), float(uniforms[-1])))
    return Rejection(len(draft), draw(p[len(draft)], float(uniforms[-1])))

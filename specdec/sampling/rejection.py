"""Speculative rejection sampling (Leviathan et al. 2023, Chen et al. 2023), as pure functions over tensors.

p is always the target's distribution and q the draft's, both AFTER every processor; q must be the very
distribution the draft tokens were sampled from. Uniform numbers come in as arguments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rejection:
    """accepted: how many draft tokens stay. token: the recovered token, or the bonus token if all were
    accepted.
    """

    accepted: int
    token: int


def accepts(p: float, q: float) -> float:
    """min(1, p/q), the chance that a draft token stays, from its probabilities under p and q."""
    return min(1.0, p / q) if q > 0.0 else 0.0


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


def count_accepted(p: Sequence[float], q: Sequence[float], uniforms: Sequence[float]) -> int:
    """How many draft tokens in a row are accepted, from their probabilities under p and under q."""
    for index, (p_x, q_x, uniform) in enumerate(zip(p, q, uniforms, strict=True)):
        if uniform >= accepts(p_x, q_x):
            return index
    return len(p)


def recover_from_samples(
    tokens: Sequence[int], p: Sequence[float], q: Tensor, uniforms: Sequence[float]
) -> int | None:
    """The recovered token from i.i.d. samples of p (thinned downlink), or None if all of them fail.

    tokens, p: samples of the target's distribution and their probabilities. q: the draft's row [vocab]. A
    sample s stays with probability max(0, 1 - q(s)/p(s)), so what stays is distributed as
    norm(max(0, p - q)). After None, more samples or the whole residual go on exactly.
    """
    for token, p_s, uniform in zip(tokens, p, uniforms, strict=True):
        if uniform < 1.0 - float(q[token]) / p_s:
            return token
    return None


def recover_from_sparse(
    tokens: Sequence[int], p: Sequence[float], tail: float, q: Tensor, uniform: float
) -> int | None:
    """The recovered token from the largest entries of p, or None when the rest of the row is needed.

    tokens, p: listed entries; tail: the mass of all others. This is where a walk of proposals from p ends: at
    a listed token with probability in proportion to max(0, p - q), or outside the list in proportion to the
    tail (then go on with `recover_from_rest`). Nothing is truncated (TRAPS 17).
    """
    cumulative = list(accumulate(max(0.0, p_s - float(q[s])) for s, p_s in zip(tokens, p, strict=True)))
    place = bisect_right(cumulative, uniform * (cumulative[-1] + tail))
    return tokens[place] if place < len(tokens) else None


def recover_from_rest(p: Tensor, listed: Sequence[int], q: Tensor, uniforms: Sequence[float]) -> int:
    """Goes on after `recover_from_sparse` gave None, with the whole row p [vocab] and three uniform numbers.

    That proposal fell outside `listed`: it is drawn there and kept or not; if not, everything starts afresh.
    """
    outside = p.double().clone()
    outside[list(listed)] = 0.0
    if float(outside.sum()) > 0.0:
        token = draw(outside, uniforms[0])
        if uniforms[1] < 1.0 - float(q[token]) / float(p[token]):
            return token
    return draw(recovery_distribution(p, q), uniforms[2])


def verify_chain(draft: list[int], q: Tensor, p: Tensor, uniforms: Tensor) -> Rejection:
    """Verify a chain of draft tokens.

    draft: k ids sampled from the rows of q. q: probabilities float [k, vocab]. p: probabilities float [k+1,
    vocab], the last row for the bonus token. uniforms: float64 [k+1] in [0, 1): one per acceptance, the last
    for the draw.
    """
    numbers = uniforms.tolist()
    p_x = [float(p[index, token]) for index, token in enumerate(draft)]
    q_x = [float(q[index, token]) for index, token in enumerate(draft)]
    accepted = count_accepted(p_x, q_x, numbers[:-1])
    if accepted < len(draft):
        return Rejection(accepted, draw(recovery_distribution(p[accepted], q[accepted]), numbers[-1]))
    return Rejection(accepted, draw(p[accepted], numbers[-1]))

# SPDX-License-Identifier: Apache-2.0
"""Speculative rejection sampling (Leviathan et al. 2023, Chen et al. 2023), as pure functions over tensors.

p is always the target's distribution and q the draft's, both AFTER every processor. q must be exactly the distribution
that the draft tokens were sampled from. Uniform numbers are passed as arguments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


def accepts(p: float, q: float) -> float:
    """min(1, p/q), the chance that a draft token is accepted, from its probabilities under p and q."""
    return min(1.0, p / q) if q > 0.0 else 0.0


def recovery_distribution(p: Tensor, q: Tensor) -> Tensor:
    """The distribution norm(max(0, p - q)) [vocab] to draw from after a rejection, on p's device.

    Falls back to p if rounding leaves no difference (p == q); a rejection then has probability 0. One of the two came
    over the link and may be on the CPU, so q is moved to p's device.
    """
    whole = p.double()
    residual = torch.clamp(whole - q.to(p.device).double(), min=0.0)
    total = residual.sum()
    return torch.where(total > 0.0, residual / total, whole / whole.sum())  # without a device sync


def draw(distribution: Tensor, uniform: float) -> int:
    """The token where the cumulative distribution [vocab] exceeds `uniform` in [0, 1); never one of probability 0."""
    return draw_many(distribution, [uniform])[0]


def draw_many(distribution: Tensor, uniforms: Sequence[float]) -> list[int]:
    """As `draw` for many numbers: i.i.d. samples of the distribution [vocab]."""
    return draw_on_device(distribution, uniforms).tolist() if uniforms else []


def draw_on_device(distribution: Tensor, uniforms: Sequence[float] | Tensor) -> Tensor:
    """As `draw_many`, but the ids int64 [n] stay on the distribution's device, without a wait. uniforms: numbers, or
    float64 [n] on that device.
    """
    cumulative = distribution.double().cumsum(dim=-1)
    if isinstance(uniforms, Tensor):
        marks = uniforms * cumulative[-1]
    elif len(uniforms) == 1:
        marks = cumulative[-1:] * uniforms[0]
    else:
        marks = torch.tensor(uniforms, dtype=torch.float64, device=cumulative.device) * cumulative[-1]
    places = torch.searchsorted(cumulative, marks, right=True)
    if places.device.type == "cpu" and int(places.max()) < distribution.shape[-1]:
        return places  # checking is faster than the general path
    # Rounding may put a mark past the end; the last token with a probability above 0 is taken then.
    tokens = torch.arange(distribution.shape[-1], device=distribution.device)
    return torch.minimum(places, torch.where(distribution > 0, tokens, 0).max())


def count_accepted(p: Sequence[float], q: Sequence[float], uniforms: Sequence[float]) -> int:
    """How many draft tokens in a row are accepted, from their probabilities under p and under q."""
    for index, (p_x, q_x, uniform) in enumerate(zip(p, q, uniforms, strict=True)):
        if uniform >= accepts(p_x, q_x):
            return index
    return len(p)


@dataclass(frozen=True)
class Listing:
    """The edge's knowledge of the target's row after a rejection: some entries, and the total of the others.

    tokens: the listed ids. residual: running sums of max(0, p - q) over them, as long as tokens. tail: the probability
    under p of all unlisted tokens (1 if none is listed).

    Recovery is a walk of proposals from p, each kept with probability max(0, 1 - q/p), until one is kept. The result is
    distributed as norm(max(0, p - q)). Inside the list the walk is solved in closed form: it ends at a listed token in
    proportion to its residual, or proposes an unlisted one in proportion to the tail.
    """

    tokens: Sequence[int]
    residual: Sequence[float]
    tail: float

    def step(self, uniform: float) -> int | None:
        """Walk until a listed token is kept; None if an unlisted token is proposed (see `recover_from_samples`)."""
        kept = self.residual[-1] if self.residual else 0.0
        place = bisect_right(self.residual, uniform * (kept + self.tail))
        return self.tokens[place] if place < len(self.tokens) else None


def make_listing(tokens: Sequence[int], p: Sequence[float], tail: float, q: Tensor) -> Listing:
    """Create a Listing from entries of p. q: the draft's row [vocab]."""
    listed_q = q[list(tokens)].tolist()
    residual = accumulate(max(0.0, p_s - q_s) for p_s, q_s in zip(p, listed_q, strict=True))
    return Listing(tokens, tuple(residual), tail)


def recover_from_samples(
    listing: Listing, samples: Sequence[int], p: Sequence[float], q: Tensor, uniforms: Sequence[float]
) -> int | None:
    """Continue the walk where it proposes an unlisted token. Nothing is truncated.

    Args:
        listing: The listed entries.
        samples: i.i.d. samples of the target's distribution outside the listing.
        p: Their probabilities.
        q: The draft's row [vocab].
        uniforms: Two numbers per sample.

    Returns:
        The recovered token; None if the samples are used up. The walk then proposes an unlisted token again, and more
        samples or `recover_from_rest` continue it exactly.
    """
    for place, (token, p_s) in enumerate(zip(samples, p, strict=True)):
        if uniforms[2 * place] * p_s < p_s - float(q[token]):
            return token
        found = listing.step(uniforms[2 * place + 1])
        if found is not None:
            return found
    return None


def recover_from_rest(p: Tensor, listed: Sequence[int], q: Tensor, uniforms: Sequence[float]) -> int:
    """Continue the walk where it proposes an unlisted token, with the full row p [vocab] and three uniform numbers.

    A token is drawn outside `listed` and kept or rejected; if it is rejected, the walk starts again.
    """
    outside = p.double().clone()
    outside[list(listed)] = 0.0
    if float(outside.sum()) > 0.0:
        token = draw(outside, uniforms[0])
        if uniforms[1] < 1.0 - float(q[token]) / float(p[token]):
            return token
    return draw(recovery_distribution(p, q), uniforms[2])

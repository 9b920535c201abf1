"""Logits processors: temperature, top-k, top-p, min-p. The same code on both sides, so that q is what was
sampled.

Works on log-probabilities of rows of logits and marks what is cut with -inf; never touches a random number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from specdec.options import GenerationOptions

NEVER = float("-inf")
_LARGE = 16_384
"""Of a smaller vocabulary sorting all is as quick."""
_FEW = 2048
_BINS, _WIDEST = 4096, 32.0


def process_logits(logits: Tensor, options: GenerationOptions) -> Tensor:
    """Logits float [rows, vocab] -> log-probabilities float32 [rows, vocab] after all processors; -inf = cut.

    Order as in Hugging Face `generate`: temperature, top-k, top-p, min-p, and a final normalisation.
    Needs temperature > 0 (greedy decoding has no distribution).
    """
    return torch.log_softmax(cut_scores(logits, options), dim=-1)


def cut_scores(logits: Tensor, options: GenerationOptions) -> Tensor:
    """The same without the normalisation, for those who only compare: log-probabilities but for a constant a row."""
    scores = logits.float() / options.temperature
    if options.top_k:
        scores = keep_top_k(scores, options.top_k)
    if options.top_p < 1.0:
        scores = keep_top_p(scores, options.top_p)
    if options.min_p > 0.0:
        scores = keep_min_p(scores, options.min_p)
    return scores


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Cut everything below the k-th largest score of each row; ties with it stay."""
    if k >= scores.shape[-1]:
        return scores
    threshold = torch.topk(scores, k, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < threshold, NEVER)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches p; at least the first one.

    Of equals the first ones stay.
    """
    if scores.device.type == "cpu" and scores.shape[-1] >= _LARGE:
        return torch.stack([_nucleus(row, p) for row in scores.reshape(-1, scores.shape[-1])]).view(scores.shape)
    ordered, order = torch.sort(scores, dim=-1, descending=True, stable=True)
    mass_before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
    mass_before[..., 0] = 0.0
    cut = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, mass_before >= p)
    return scores.masked_fill(cut, NEVER)


def _nucleus(scores: Tensor, p: float) -> Tensor:
    """The same of one row [vocab]: sorted are only those that are about as likely as the last one that stays."""
    left = torch.nonzero(scores > NEVER)[:, 0]
    if left.numel() <= _FEW:  # a cut before has left so few that sorting them all is quicker
        left = left[torch.sort(scores[left], descending=True, stable=True).indices]
        mass = torch.softmax(scores[left].double(), dim=-1)
        return scores.index_fill(0, left[mass.cumsum(dim=0) - mass >= p], NEVER)
    top = scores.max()
    chances = torch.softmax(scores, dim=-1)
    bins = (top - scores).mul_(_BINS / _WIDEST).clamp_(max=_BINS - 1).to(torch.int64)
    reached = torch.bincount(bins, weights=chances.double(), minlength=_BINS).cumsum(dim=0)
    last = min(int(torch.searchsorted(reached, p)), _BINS - 1)
    near = torch.nonzero(bins == last)[:, 0]
    near = near[torch.sort(scores[near], descending=True, stable=True).indices]
    mass = chances[near].double()
    mass_before = mass.cumsum(dim=0) - mass + (reached[last - 1] if last else 0.0)
    cut = bins > last
    cut[near] = mass_before >= p
    return scores.masked_fill(cut, NEVER)


def keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    """Cut tokens less likely than min_p times the likeliest one."""
    least = scores.amax(dim=-1, keepdim=True) + math.log(min_p)
    return scores.masked_fill(scores < least, NEVER)

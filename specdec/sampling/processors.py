"""Logits processors: temperature, top-k, top-p, min-p. The same code on both sides, so that q is what was
sampled.

Works on log-probabilities of rows of logits and marks what is cut with -inf; never touches a random number.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specdec.options import GenerationOptions

NEVER = float("-inf")


def process_logits(logits: Tensor, options: GenerationOptions) -> Tensor:
    """Logits float [rows, vocab] -> log-probabilities float32 [rows, vocab] after all processors; -inf = cut.

    Order as in Hugging Face `generate`: temperature, top-k, top-p, min-p, and a final normalisation.
    Needs temperature > 0 (greedy decoding has no distribution).
    """
    scores = logits.float() / options.temperature
    if options.top_k:
        scores = keep_top_k(scores, options.top_k)
    if options.top_p < 1.0:
        scores = keep_top_p(scores, options.top_p)
    if options.min_p > 0.0:
        scores = keep_min_p(scores, options.min_p)
    return torch.log_softmax(scores, dim=-1)


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Cut everything below the k-th largest score of each row; ties with it stay."""
    if k >= scores.shape[-1]:
        return scores
    threshold = torch.topk(scores, k, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < threshold, NEVER)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches p; at least the first one."""
    ordered, order = torch.sort(scores, dim=-1, descending=True, stable=True)
    mass_before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
    mass_before[..., 0] = 0.0
    cut = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, mass_before >= p)
    return scores.masked_fill(cut, NEVER)


def keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    """Cut tokens less likely than min_p times the likeliest one."""
    probabilities = torch.softmax(scores, dim=-1)
    cut = probabilities < min_p * probabilities.amax(dim=-1, keepdim=True)
    return scores.masked_fill(cut, NEVER)

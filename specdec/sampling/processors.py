# SPDX-License-Identifier: Apache-2.0
"""Logits processors: temperature, top-k, top-p, min-p. The same code on both sides, so that q is what was
sampled.

Works on log-probabilities of rows of logits and marks what is cut with -inf; never touches a random number.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from specdec.options import GenerationOptions

NEVER = float("-inf")
LARGE = 16_384
"""Of a smaller vocabulary sorting all is as quick."""
_FEW = 2048
_PEAKS = 1024
_BINS, _NEAR, _WIDEST = 4096, 12.0, 32.0
"""Tokens less likely than the likeliest by more than this factor (as a logarithm) are seldom needed to reach p."""
_SURE = 1e-6


def process_logits(logits: Tensor, options: GenerationOptions) -> Tensor:
    """Logits float [rows, vocab] -> log-probabilities float32 [rows, vocab] after all processors; -inf = cut.

    Order as in Hugging Face `generate`: temperature, top-k, top-p, min-p, and a final normalisation.
    Needs temperature > 0 (greedy decoding has no distribution).
    """
    return torch.log_softmax(cut_scores(logits, options), dim=-1)


def cut_scores(logits: Tensor, options: GenerationOptions) -> Tensor:
    """The same without the normalisation, for those who only compare: log-probabilities except for a constant a row."""
    scores = logits.float() / options.temperature
    if options.top_k:
        scores = keep_top_k(scores, options.top_k)
    return _cut_further(scores, options)


def cut_to_few(logits: Tensor, options: GenerationOptions) -> tuple[Tensor, Tensor] | None:
    """What the processors leave of one large row [vocab] on a CPU by top-k: (ids int64 [n], rising, their scores as in
    `cut_scores`, [n]). None where nothing says that few are left.
    """
    k, width = options.top_k, logits.shape[0] // _PEAKS
    if not 0 < k < _PEAKS or not width:
        return None
    values = (logits.float() / options.temperature).numpy()
    # The k-th largest of the pieces' largest: this many are no smaller, and few others are.
    peaks = values[: width * _PEAKS].reshape(_PEAKS, width).max(axis=1)
    near = np.flatnonzero(values >= np.partition(peaks, _PEAKS - k)[_PEAKS - k])
    if not k <= near.size <= _FEW:  # many alike, or no numbers
        return None
    left = values[near]
    stay = left >= np.partition(left, left.size - k)[left.size - k]
    kept = torch.from_numpy(left[stay])[None]
    return torch.from_numpy(near[stay]), _cut_further(kept, options)[0]


def _cut_further(scores: Tensor, options: GenerationOptions) -> Tensor:
    """Top-p and min-p, behind top-k."""
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
    if scores.device.type == "cpu" and scores.shape[-1] >= LARGE:
        return torch.stack([_nucleus(row, p) for row in scores.reshape(-1, scores.shape[-1])]).view(
            scores.shape
        )
    ordered, order = torch.sort(scores, dim=-1, descending=True, stable=True)
    mass_before = torch.softmax(ordered, dim=-1).cumsum(dim=-1).roll(1, dims=-1)
    mass_before[..., 0] = 0.0
    cut = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, mass_before >= p)
    return scores.masked_fill(cut, NEVER)


def _nucleus(scores: Tensor, p: float) -> Tensor:
    """The same of one row [vocab]: sorted are only those that are about as likely as the last one that stays."""
    values = scores.numpy()
    top = float(values.max())
    if not top > NEVER:  # nothing may be picked, or nothing is a number
        return scores
    whole = float((scores - top).exp_().sum(dtype=torch.float64))
    left, width = torch.from_numpy(np.flatnonzero(values > top - _NEAR)), _NEAR
    chances = (scores[left] - top).exp_().double()
    if float(chances.sum()) < p * whole * (1.0 + _SURE):  # the last one that stays is not among these
        left, width = torch.from_numpy(np.flatnonzero(values > NEVER)), _WIDEST
        chances = (scores[left] - top).exp_().double()
    kept = torch.full_like(scores, NEVER)
    before = 0.0
    if left.numel() > _FEW:  # they are put into bins, and only the bin of the last one that stays is sorted
        bins = (top - scores[left]).mul_(_BINS / width).clamp_(max=_BINS - 1).to(torch.int64)
        reached = torch.bincount(bins, weights=chances, minlength=_BINS).cumsum(dim=0)
        last = min(int(torch.searchsorted(reached, p * whole)), _BINS - 1)
        before = float(reached[last - 1]) if last else 0.0
        sure, here = left[bins < last], bins == last
        kept[sure] = scores[sure]
        left, chances = left[here], chances[here]
    likely = scores[left]
    if left.numel() and bool(likely.min() < likely.max()):  # Otherwise they stand as they are to be cut
        order = torch.sort(likely, descending=True, stable=True).indices
        left, chances = left[order], chances[order]
    left = left[chances.cumsum(dim=0) - chances + before < p * whole]
    kept[left] = scores[left]
    return kept


def keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    """Cut tokens less likely than min_p times the likeliest one."""
    least = scores.amax(dim=-1, keepdim=True) + math.log(min_p)
    return scores.masked_fill(scores < least, NEVER)

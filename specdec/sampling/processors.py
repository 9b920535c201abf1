# SPDX-License-Identifier: Apache-2.0
"""Logits processors: temperature, top-k, top-p, min-p. Both sides use this code, so that q is the distribution that was
sampled from.

They work on rows of scores and set cut tokens to -inf. They use no random numbers.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from specdec.options import GenerationOptions

NEVER = float("-inf")
LARGE = 16_384
"""For smaller vocabularies, sorting the whole row is as fast."""
_FEW = 2048
_PEAKS = 1024
_BINS, _NEAR, _WIDEST = 4096, 12.0, 32.0
"""Bins for partial sorting, and their width in log-probability below the maximum. Tokens lower than _NEAR are seldom
needed to reach p; otherwise _WIDEST is used.
"""
_SURE = 1e-6


def process_logits(logits: Tensor, options: GenerationOptions) -> Tensor:
    """Logits float [rows, vocab] -> log-probabilities float32 [rows, vocab] after all processors; -inf = cut.

    Order as in Hugging Face `generate`: temperature, top-k, top-p, min-p, then normalisation. The temperature must be
    above 0, since greedy decoding has no distribution.
    """
    return torch.log_softmax(cut_scores(logits, options), dim=-1)


def cut_scores(logits: Tensor, options: GenerationOptions) -> Tensor:
    """As `process_logits` without the normalisation: log-probabilities up to a constant per row, for comparisons."""
    scores = logits.float() / options.temperature
    if options.top_k:
        scores = keep_top_k(scores, options.top_k)
    return _cut_further(scores, options)


def cut_to_few(logits: Tensor, options: GenerationOptions) -> tuple[Tensor, Tensor] | None:
    """The tokens of one large row [vocab] that remain after top-k and the other processors, on a CPU.

    Returns (ids int64 [n], ascending; their scores [n] as in `cut_scores`); None unless top-k leaves few tokens.
    """
    k, width = options.top_k, logits.shape[0] // _PEAKS
    if not 0 < k < _PEAKS or not width:
        return None
    values = (logits.float() / options.temperature).numpy()
    # The k-th largest of the pieces' maxima: at least k tokens reach it, and few more do.
    peaks = values[: width * _PEAKS].reshape(_PEAKS, width).max(axis=1)
    near = np.flatnonzero(values >= np.partition(peaks, _PEAKS - k)[_PEAKS - k])
    if not k <= near.size <= _FEW:  # many equal scores, or NaN
        return None
    left = values[near]
    stay = left >= np.partition(left, left.size - k)[left.size - k]
    kept = torch.from_numpy(left[stay])[None]
    return torch.from_numpy(near[stay]), _cut_further(kept, options)[0]


def _cut_further(scores: Tensor, options: GenerationOptions) -> Tensor:
    """Top-p and min-p, after top-k."""
    if options.top_p < 1.0:
        scores = keep_top_p(scores, options.top_p)
    if options.min_p > 0.0:
        scores = keep_min_p(scores, options.min_p)
    return scores


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Cut everything below the k-th largest score of each row; ties are kept."""
    if k >= scores.shape[-1]:
        return scores
    threshold = torch.topk(scores, k, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < threshold, NEVER)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Keep the smallest set of likeliest tokens whose total probability reaches p; at least one token.

    Of ties the first ones are kept.
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
    """`keep_top_p` of one row [vocab]; sorts only tokens about as likely as the last one kept."""
    values = scores.numpy()
    top = float(values.max())
    if not top > NEVER:  # everything is cut, or the row is NaN
        return scores
    whole = float((scores - top).exp_().sum(dtype=torch.float64))
    left, width = torch.from_numpy(np.flatnonzero(values > top - _NEAR)), _NEAR
    chances = (scores[left] - top).exp_().double()
    if float(chances.sum()) < p * whole * (1.0 + _SURE):  # the last token to keep is not among these
        left, width = torch.from_numpy(np.flatnonzero(values > NEVER)), _WIDEST
        chances = (scores[left] - top).exp_().double()
    kept = torch.full_like(scores, NEVER)
    before = 0.0
    if left.numel() > _FEW:  # put them into bins, and sort only the bin of the last token to keep
        bins = (top - scores[left]).mul_(_BINS / width).clamp_(max=_BINS - 1).to(torch.int64)
        reached = torch.bincount(bins, weights=chances, minlength=_BINS).cumsum(dim=0)
        last = min(int(torch.searchsorted(reached, p * whole)), _BINS - 1)
        before = float(reached[last - 1]) if last else 0.0
        sure, here = left[bins < last], bins == last
        kept[sure] = scores[sure]
        left, chances = left[here], chances[here]
    likely = scores[left]
    if left.numel() and bool(likely.min() < likely.max()):  # otherwise they are in order already
        order = torch.sort(likely, descending=True, stable=True).indices
        left, chances = left[order], chances[order]
    left = left[chances.cumsum(dim=0) - chances + before < p * whole]
    kept[left] = scores[left]
    return kept


def keep_min_p(scores: Tensor, min_p: float) -> Tensor:
    """Cut tokens less likely than min_p times the likeliest one."""
    least = scores.amax(dim=-1, keepdim=True) + math.log(min_p)
    return scores.masked_fill(scores < least, NEVER)

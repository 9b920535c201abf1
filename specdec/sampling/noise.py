# SPDX-License-Identifier: Apache-2.0
"""Shared Gumbel noise g(seed, position, token id): equal numbers on both sides of a link, on any device.

A counter-based integer hash, so there is no generator state to lose, roll back or send. argmax(log p + g) is an exact
sample from p; two sides with similar p mostly pick the same token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Finaliser of splitmix64 (Steele, Lea, Flood 2014), as signed 64-bit numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_WORD = (1 << 64) - 1
_ROUNDS = ((np.uint64(30), np.uint64(_MIX_1 & _WORD)), (np.uint64(27), np.uint64(_MIX_2 & _WORD)))
_PIECE = 1 << 15
LARGE = 8192
"""For smaller vocabularies, computing all the noise is faster than avoiding it."""
_LIKELIEST = 64
_NEAR, _MANY = 10.0, 8192
"""Tokens whose log-probability is lower than the largest by more than _NEAR seldom win. If at most _MANY are nearer,
filtering them is faster than sorting."""


def gumbel_noise(seed: int, positions: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, of the broadcast shape of `positions` and `tokens` (both int64).

    positions: index of the token within the answer, counted from 0. tokens: vocabulary ids.
    """
    return _gumbel(hashed_uniform(seed, positions, tokens))


def _gumbel(uniform: Tensor) -> Tensor:
    return -torch.log(-torch.log(uniform))


def noisy_argmax(scores: Tensor, seed: int, positions: Tensor) -> Tensor:
    """argmax(scores + noise) of each row, int64 [rows]. On a CPU most of the noise need not be computed; the result is
    the same.

    scores: log-probabilities float32 [rows, vocab] up to a constant per row; -inf = cut. positions: int64 [rows].
    """
    if scores.device.type != "cpu" or scores.shape[1] < LARGE:
        tokens = torch.arange(scores.shape[1], device=scores.device)
        noisy = scores.double() + gumbel_noise(seed, positions[:, None], tokens[None, :])
        return noisy.argmax(dim=-1)
    return torch.tensor([_picked(row, seed, at) for row, at in zip(scores, positions, strict=True)])


def noisy_argmax_of(scores: Tensor, words: Tensor, positions: Tensor) -> Tensor:
    """As `noisy_argmax` with all noise computed, for rows with different seeds. words: int64 [rows], `seed_word`s."""
    tokens = torch.arange(scores.shape[1], device=scores.device)
    noisy = scores.double() + _gumbel(_uniform(words[:, None], positions[:, None], tokens[None, :]))
    return noisy.argmax(dim=-1)


def seed_word(seed: int) -> int:
    """The hash of a seed, to be combined with positions: a signed 64-bit number."""
    return _signed(_mix_int(seed))


def _picked(scores: Tensor, seed: int, position: Tensor) -> int:
    """`noisy_argmax` of one row [vocab], computing noise only for the likeliest tokens and those whose noise may lift
    them above these.
    """
    values = scores.numpy()
    least = values.max() - _NEAR
    found = np.flatnonzero(values > least)
    if not found.size:  # everything is cut, or the row is NaN
        return int(scores.argmax())
    tokens = torch.from_numpy(found)
    if found.size > _MANY:
        best, tokens = torch.topk(scores, _LIKELIEST)
        least = best[-1]
    lead = float((scores[tokens].double() + gumbel_noise(seed, position, tokens)).max())
    if np.count_nonzero(values > -np.inf) > tokens.numel():
        # A token that is no likelier than `least` needs at least this uniform number to win.
        needed = math.exp(-math.exp(min(float(least) - lead, 700.0))) * (1.0 - 1e-9)
        others = _at_least(math.floor(needed * 2.0**52) - 1, seed, int(position), values.shape[0])
        tokens = torch.cat([tokens, torch.from_numpy(others)])
    tokens = tokens.sort().values  # of ties the first wins, as in a full row
    noisy = scores[tokens].double() + gumbel_noise(seed, position, tokens)
    return int(tokens[noisy.argmax()])


def _at_least(bits: int, seed: int, position: int, vocab: int) -> npt.NDArray[np.int64]:
    """The tokens whose number in `hashed_uniform` is at least bits / 2**52, and possibly a few more.

    The hash's last mixing step changes only the lower 33 bits of a word. It is skipped, and words are compared by the
    bits above. Unsigned, in place, in pieces that fit into the cache.
    """
    least = np.uint64(max(bits, 0) << 12 & ~((1 << 33) - 1))
    stream = np.uint64(_mix_int((position * _GOLDEN + _mix_int(seed) - _GOLDEN) & _WORD))
    found = []
    for start in range(0, vocab, _PIECE):
        word = _words(vocab)[start : start + _PIECE] + stream
        for shift, factor in _ROUNDS:
            word ^= word >> shift
            word *= factor
        found.append(np.flatnonzero(word >= least) + start)
    return np.concatenate(found)


@lru_cache(maxsize=4)
def _words(vocab: int) -> npt.NDArray[np.uint64]:
    return np.arange(vocab, dtype=np.uint64) * np.uint64(_MIX_1 & _WORD) + np.uint64(_GOLDEN & _WORD)


def hashed_uniform(seed: int, positions: Tensor, tokens: Tensor) -> Tensor:
    """Uniform numbers strictly inside (0, 1), float64, of the broadcast shape of two int64 tensors."""
    return _uniform(seed_word(seed), positions, tokens)


def _uniform(word: Tensor | int, positions: Tensor, tokens: Tensor) -> Tensor:
    stream = _mix(positions * _GOLDEN + word)
    bits = _mix(stream + tokens * _MIX_1 + _GOLDEN)
    # 52 high bits and a half: a uniform strictly inside (0, 1), exact in float64.
    return (_shift(bits, 12).to(torch.float64) + 0.5) * 2.0**-52


def hashed_numbers(seed: int, position: int, tokens: Iterable[int]) -> list[float]:
    """As `hashed_uniform`, at one position for a few tokens; far faster for a single one."""
    stream = _mix_int(position * _GOLDEN + _mix_int(seed) - _GOLDEN)
    return [((_mix_int(stream + token * _MIX_1) >> 12) + 0.5) * 2.0**-52 for token in tokens]


def _mix(word: Tensor) -> Tensor:
    word = (word ^ _shift(word, 30)) * _MIX_1
    word = (word ^ _shift(word, 27)) * _MIX_2
    return word ^ _shift(word, 31)


def _shift(word: Tensor, bits: int) -> Tensor:
    """Logical right shift of signed 64-bit integers."""
    return (word >> bits) & ((1 << (64 - bits)) - 1)


def _mix_int(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= (1 << 63) else word

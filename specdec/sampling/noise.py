"""Shared Gumbel noise g(seed, position, token id): the same numbers on both sides of a link, on any device.

A counter-based hash on integers, so there is no generator state to lose, roll back or send (TRAPS 17a).
Whoever takes argmax(log p + g) samples exactly from p; two sides with similar p mostly take the same token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor

# Finaliser of splitmix64 (Steele, Lea, Flood 2014), as signed 64-bit numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_WORD = (1 << 64) - 1
_LARGE = 8192
"""Of smaller vocabularies all noise is quicker to make than to do without."""
_LIKELIEST = 64
_NEAR, _MANY = 10.0, 8192
"""Tokens less likely than the likeliest by this factor (as a logarithm) seldom win; if no more are nearer than so many,
sorting them out is quicker than sorting."""


def gumbel_noise(seed: int, positions: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, of the broadcast shape of `positions` and `tokens` (both int64).

    positions: index of the token within the answer, counted from 0. tokens: vocabulary ids.
    """
    return -torch.log(-torch.log(hashed_uniform(seed, positions, tokens)))


def noisy_argmax(scores: Tensor, seed: int, positions: Tensor) -> Tensor:
    """argmax(scores + noise) of each row, int64 [rows], as if all of the noise had been made; on a CPU most of it need
    not be.

    scores: log-probabilities float32 [rows, vocab], but for a constant; -inf where cut. positions: int64 [rows].
    """
    if scores.device.type != "cpu" or scores.shape[1] < _LARGE:
        tokens = torch.arange(scores.shape[1], device=scores.device)
        noisy = scores.double() + gumbel_noise(seed, positions[:, None], tokens[None, :])
        return noisy.argmax(dim=-1)
    return torch.tensor([_picked(row, seed, at) for row, at in zip(scores, positions, strict=True)])


def _picked(scores: Tensor, seed: int, position: Tensor) -> int:
    """The same of one row [vocab]: exactly for the likeliest, and for those whose noise may lift them above these."""
    least = float(scores.max()) - _NEAR
    tokens = torch.nonzero(scores > least)[:, 0]
    if not tokens.numel():  # nothing may be picked, or nothing is a number
        return int(scores.argmax())
    if tokens.numel() > _MANY:
        best, tokens = torch.topk(scores, _LIKELIEST)
        least = float(best[-1])
    lead = float((scores[tokens].double() + gumbel_noise(seed, position, tokens)).max())
    if int(torch.count_nonzero(scores > -math.inf)) > tokens.numel():
        # A token that is no likelier than `least` needs so much noise, that is a number of so many 52nds of a bit.
        needed = math.exp(-math.exp(min(least - lead, 700.0))) * (1.0 - 1e-9)
        others = torch.nonzero(_bits(seed, position, scores.shape[0]) >= math.floor(needed * 2.0**52) - 1)[:, 0]
        tokens = torch.cat([tokens, others])
    tokens = tokens.sort().values  # of equals the first counts, as in a whole row
    noisy = scores[tokens].double() + gumbel_noise(seed, position, tokens)
    return int(tokens[noisy.argmax()])


def _bits(seed: int, position: Tensor, vocab: int) -> Tensor:
    """What `hashed_uniform` makes its numbers of, for all tokens: int64 [vocab] of 52 bits. In place, in the cache."""
    word = _mix(position * _GOLDEN + _signed(_mix_int(seed))) + _words(vocab)
    spare = torch.empty_like(word)
    for bits, factor in ((30, _MIX_1), (27, _MIX_2), (31, None)):
        torch.bitwise_right_shift(word, bits, out=spare)
        word ^= spare.bitwise_and_((1 << (64 - bits)) - 1)
        if factor is not None:
            word *= factor
    return word.bitwise_right_shift_(12).bitwise_and_((1 << 52) - 1)


@lru_cache(maxsize=4)
def _words(vocab: int) -> Tensor:
    return torch.arange(vocab) * _MIX_1 + _GOLDEN


def hashed_uniform(seed: int, positions: Tensor, tokens: Tensor) -> Tensor:
    """Uniform numbers strictly inside (0, 1), float64, of the broadcast shape of two int64 tensors."""
    stream = _mix(positions * _GOLDEN + _signed(_mix_int(seed)))
    bits = _mix(stream + tokens * _MIX_1 + _GOLDEN)
    # 52 high bits and a half: a uniform strictly inside (0, 1), exact in float64.
    return (_shift(bits, 12).to(torch.float64) + 0.5) * 2.0**-52


def hashed_numbers(seed: int, position: int, tokens: Iterable[int]) -> list[float]:
    """The same numbers of `hashed_uniform` at one position, for a few tokens: far quicker for a single one."""
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

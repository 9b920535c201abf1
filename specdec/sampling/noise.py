"""Shared Gumbel noise g(seed, position, token id): the same numbers on both sides of a link, on any device.

A counter-based hash on integers, so there is no generator state to lose, roll back or send (TRAPS 17a).
Whoever takes argmax(log p + g) samples exactly from p; two sides with similar p mostly take the same token.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

# Finaliser of splitmix64 (Steele, Lea, Flood 2014), as signed 64-bit numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)
_WORD = (1 << 64) - 1


def gumbel_noise(seed: int, positions: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, of the broadcast shape of `positions` and `tokens` (both int64).

    positions: index of the token within the answer, counted from 0. tokens: vocabulary ids.
    """
    return -torch.log(-torch.log(hashed_uniform(seed, positions, tokens)))


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

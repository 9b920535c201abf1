# SPDX-License-Identifier: Apache-2.0
"""Uniform random numbers as a pure function of (seed, purpose, position): no state to lose, roll back or send.

Each purpose has a separate stream, so that no number decides two things.
"""

from __future__ import annotations

from enum import IntEnum

import torch

from specdec.sampling.noise import hashed_numbers, hashed_uniform


class Purpose(IntEnum):
    """What a number is for."""

    DRAFT = 1
    ACCEPT = 2
    BONUS = 3
    RECOVER = 4
    THIN = 5


_STRIDE = 1 << 20
_FEW = 64
"""Up to this many numbers are computed one by one, which is faster than a dozen tensor operations."""


def uniform(seed: int, purpose: Purpose, position: int) -> float:
    """The first number in (0, 1) of this purpose at this answer position."""
    return uniforms(seed, purpose, position, 1)[0]


def uniforms(seed: int, purpose: Purpose, position: int, count: int, start: int = 0) -> list[float]:
    """Numbers start .. start + count - 1 in (0, 1) of this purpose at this answer position."""
    # Negative "token ids" never collide with those of the vocabulary, so these are independent of the shared noise.
    first = -1 - int(purpose) * _STRIDE - start
    index = range(first, first - count, -1)
    if count <= _FEW:
        return hashed_numbers(seed, position, index)
    return hashed_uniform(seed, torch.tensor(position), torch.tensor(index)).tolist()

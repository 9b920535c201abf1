"""Uniform random numbers as a pure function of (seed, purpose, position): nothing to lose, roll back or send.

Each purpose is a stream of its own, so that no number decides two things.
"""

from __future__ import annotations

from enum import IntEnum

import torch
from torch import Tensor

from specdec.sampling.noise import hashed_uniform


class Purpose(IntEnum):
    """What a number is for."""

    DRAFT = 1
    ACCEPT = 2
    BONUS = 3
    RECOVER = 4
    THIN = 5


_STRIDE = 1 << 20


def uniforms(seed: int, purpose: Purpose, position: int, count: int = 1, start: int = 0) -> Tensor:
    """float64 [count] in (0, 1): numbers start .. start + count - 1 of this purpose at this answer position."""
    # Negative "token ids" never meet those of the vocabulary, so these are independent of the shared noise.
    index = -1 - int(purpose) * _STRIDE - torch.arange(start, start + count)
    return hashed_uniform(seed, torch.tensor(position), index)

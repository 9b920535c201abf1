# SPDX-License-Identifier: Apache-2.0
"""Emulated acceptance: deterministic noise on the logits of a draft model.

A target that drafts for itself is always right. With noise on its logits it errs like a weaker model: often where two
tokens are nearly equal, hardly ever where one is certain. The noise of a row is a pure function of the seed and all ids
before the row. So one prefix always gets the same noise: in a chain, a tree or a batch, and on either side of a link.
Verified tokens never depend on it.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from specdec.errors import OptionsError

MOST_STRENGTH = 1e4
_POOL = 1 << 21
"""Number of windows into a pool of noise. A row uses the window that its prefix selects, so noise costs one addition.
"""


@dataclass(frozen=True)
class Disturbance:
    """Noise on a draft model's logits. strength: its standard deviation, in units of logits."""

    strength: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.strength <= MOST_STRENGTH:
            raise OptionsError(f"a strength of {self.strength!r} is out of range: choose 0 to {MOST_STRENGTH:g}")
        if not 0 <= self.seed < 1 << 63:
            raise OptionsError(f"seed {self.seed!r} of a disturbance is out of range: choose 0 to 2**63 - 1")

    @classmethod
    def read(cls, text: str) -> Disturbance | None:
        """Parse strength and seed, like "1.25:7" from str(); None for "". Raises OptionsError for anything else."""
        if not text:
            return None
        strength, _, seed = text.partition(":")
        try:
            return cls(float(strength), int(seed or 0))
        except ValueError:
            raise OptionsError(f"{text!r} must be STRENGTH:SEED, like 1.25:0") from None

    def __str__(self) -> str:
        return f"{self.strength!r}:{self.seed}"

    def after(self, prompt_ids: Sequence[int]) -> Disturbed:
        """The noise of one answer. prompt_ids: its prompt as expanded for the model."""
        return Disturbed(self, prompt_ids)


class Disturbed:
    """Adds noise to the rows of one answer."""

    def __init__(self, disturbance: Disturbance, prompt_ids: Sequence[int]) -> None:
        self._disturbance = disturbance
        seed = disturbance.seed.to_bytes(8, "little")
        self._prompt = hashlib.blake2b(_bytes(prompt_ids), digest_size=8, key=seed)

    def rows(self, scores: Tensor, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Tensor:
        """Add noise to scores float [rows, vocab], of which row i follows answer + tails[i] -> float32."""
        if not self._disturbance.strength:
            return scores
        return scores.float() + self._disturbance.strength * self.noise(scores, answer, tails)

    def noise(self, like: Tensor, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Tensor:
        """Standard normal noise float32 of the shape and on the device of `like` [rows, vocab]."""
        behind = self._prompt.copy()
        behind.update(_bytes(answer))
        width = like.shape[1]
        pool = _pool(self._disturbance.seed, width, str(like.device))
        return torch.stack([pool[place : place + width] for place in (_place(behind, tail) for tail in tails)])


def _place(behind: hashlib.blake2b, tail: Sequence[int]) -> int:
    """The window of a row: a hash of all ids before it, and so of its position, too."""
    prefix = behind.copy()
    prefix.update(_bytes(tail))
    return int.from_bytes(prefix.digest(), "little") % _POOL


def _bytes(ids: Sequence[int]) -> bytes:
    return array("q", ids).tobytes()


@lru_cache(maxsize=4)
def _pool(seed: int, width: int, device: str) -> Tensor:
    """Numbers from a counter-based generator, equal on every machine."""
    numbers = np.random.Generator(np.random.Philox(key=seed)).standard_normal(_POOL + width, dtype=np.float32)
    return torch.from_numpy(numbers).to(device)

# SPDX-License-Identifier: Apache-2.0
"""Emulated acceptance: the logits of a model that drafts, disturbed by noise that the ids before a row decide.

A target that drafts for itself is always right. Noise on its logits makes it wrong about as a weaker model is: where
two tokens are nearly equal often, where one is sure hardly ever. What is added to a row is a pure function of
(seed, every id before the row): the same prefix is always disturbed in the same way, in a chain, in a tree, in a batch,
for a guess or for a draft in flight, on either side of a link. Nothing that is verified ever depends on it.
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
"""Different windows of noise; a row takes the one that its prefix names, so that noise costs no more than adding it."""


@dataclass(frozen=True)
class Disturbance:
    """How much the logits of a draft are disturbed. strength: standard deviation of the noise, in units of logits."""

    strength: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.strength <= MOST_STRENGTH:
            raise OptionsError(f"a strength of {self.strength!r} is out of range: choose 0 to {MOST_STRENGTH:g}")
        if not 0 <= self.seed < 1 << 63:
            raise OptionsError(f"seed {self.seed!r} of a disturbance is out of range: choose 0 to 2**63 - 1")

    @classmethod
    def read(cls, text: str) -> Disturbance | None:
        """ "1.25:7" as str() writes it: strength and seed; None for "". Raises OptionsError for anything else."""
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
        """The disturbance of one answer. prompt_ids: of its prompt as the model expands it."""
        return Disturbed(self, prompt_ids)


class Disturbed:
    """Disturbs the rows of one answer."""

    def __init__(self, disturbance: Disturbance, prompt_ids: Sequence[int]) -> None:
        self._disturbance = disturbance
        seed = disturbance.seed.to_bytes(8, "little")
        self._prompt = hashlib.blake2b(_bytes(prompt_ids), digest_size=8, key=seed)

    def rows(self, scores: Tensor, answer: Sequence[int], tails: Sequence[Sequence[int]]) -> Tensor:
        """scores float [rows, vocab], row i of what follows answer + tails[i] -> float32 [rows, vocab], disturbed."""
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
    """Which window a row takes: a hash of every id before it, and so of its position, too."""
    prefix = behind.copy()
    prefix.update(_bytes(tail))
    return int.from_bytes(prefix.digest(), "little") % _POOL


def _bytes(ids: Sequence[int]) -> bytes:
    return array("q", ids).tobytes()


@lru_cache(maxsize=4)
def _pool(seed: int, width: int, device: str) -> Tensor:
    """Numbers of a counter-based generator, the same wherever they are made."""
    numbers = np.random.Generator(np.random.Philox(key=seed)).standard_normal(_POOL + width, dtype=np.float32)
    return torch.from_numpy(numbers).to(device)

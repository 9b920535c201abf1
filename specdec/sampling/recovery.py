"""Who recovers from a rejection, and what must travel for it: an axis of its own, the same numbers on both
sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from specdec.errors import ProtocolError
from specdec.sampling.rejection import (
    draw,
    recover_from_rest,
    recover_from_samples,
    recover_from_sparse,
    recovery_distribution,
)
from specdec.sampling.uniform import Purpose, uniforms

MAX_BATCHES = 4
"""Thinned downlink: after so many batches of samples that all failed, the whole row travels."""


class Recovery(IntEnum):
    """What happens after a rejection.

    NOISE: nothing is rejected by chance, both sides use shared noise and ids suffice. CLOUD: the cloud has
    the draft's rows and draws. ROW, SAMPLES, SPARSE: the edge draws, from the target's row, from samples of
    it, or from its largest entries (and the rest on demand).
    """

    NOISE = 0
    CLOUD = 1
    ROW = 2
    SAMPLES = 3
    SPARSE = 4


@dataclass(frozen=True)
class TargetRow:
    """What the cloud tells of the target's row p. tokens None: p is the whole row; else p of those tokens.

    samples: they are i.i.d. samples of p. tail: the probability of what is not listed (0 with samples).
    """

    p: Tensor
    tokens: list[int] | None = None
    samples: bool = False
    tail: float = 0.0


def describe_row(p: Tensor, recovery: Recovery, size: int, seed: int, position: int, batch: int) -> TargetRow:
    """What to send of the row p [vocab] at an answer position; batch counts how often the edge asked before."""
    if recovery is Recovery.SAMPLES and batch < MAX_BATCHES:
        numbers = uniforms(seed, Purpose.THIN, position, size, batch * size).tolist()
        tokens = [draw(p, number) for number in numbers]
        return TargetRow(p[tokens], tokens, samples=True)
    support = torch.nonzero(p > 0)[:, 0]
    if recovery is Recovery.SPARSE and batch == 0 and size < support.shape[0]:
        best, indices = torch.topk(p, size)
        tail = float(p.double().sum() - best.double().sum())
        return TargetRow(best, indices.tolist(), tail=max(0.0, min(1.0, tail)))
    if 2 * support.shape[0] < p.shape[0]:  # an id and a probability take twice the bytes of a probability
        return TargetRow(p[support], support.tolist())
    return TargetRow(p)


class EdgeRecovery:
    """Draws the recovered token of one rejection on the edge. q [vocab]: the draft's row at that position."""

    def __init__(self, q: Tensor, seed: int, position: int) -> None:
        self._q = q
        self._seed = seed
        self._position = position
        self._used = 0
        self._listed: list[int] | None = None

    def token(self, row: TargetRow) -> int | None:
        """The recovered token, or None where more of the row is needed. Raises ProtocolError for a bad row."""
        vocab = self._q.shape[0]
        if row.tokens is not None and any(not 0 <= token < vocab for token in row.tokens):
            raise ProtocolError(f"a row names tokens outside the vocabulary of {vocab}")
        if (row.tokens is None and row.p.shape[0] != vocab) or not bool((row.p >= 0).all()):
            raise ProtocolError("a row is not a distribution over the vocabulary")
        if row.tokens is not None and row.samples:
            numbers = self._numbers(len(row.tokens))
            return recover_from_samples(row.tokens, row.p.tolist(), self._q, numbers)
        if row.tokens is not None and row.tail > 0.0:
            self._listed = row.tokens
            return recover_from_sparse(row.tokens, row.p.tolist(), row.tail, self._q, self._numbers(1)[0])
        p = row.p
        if row.tokens is not None:
            p = torch.zeros(vocab, dtype=row.p.dtype)
            p[row.tokens] = row.p
        if not bool((p > 0).any()):
            raise ProtocolError("a row is not a distribution over the vocabulary")
        if self._listed is not None:
            return recover_from_rest(p, self._listed, self._q, self._numbers(3))
        return draw(recovery_distribution(p, self._q), self._numbers(1)[0])

    def _numbers(self, count: int) -> Sequence[float]:
        numbers = uniforms(self._seed, Purpose.RECOVER, self._position, count, self._used).tolist()
        self._used += count
        return numbers

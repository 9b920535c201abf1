# SPDX-License-Identifier: Apache-2.0
"""Recovery from a rejection: which part of the target's row is sent, and how the edge draws the recovered token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.errors import ProtocolError
from specdec.sampling.recoveries import Recovery
from specdec.sampling.rejection import (
    Listing,
    draw,
    draw_many,
    make_listing,
    recover_from_rest,
    recover_from_samples,
    recovery_distribution,
)
from specdec.sampling.uniform import Purpose, uniforms

SPARSE_SAMPLES = 8
"""Sparse rows: this many samples of unlisted tokens are sent with the list."""
MAX_BATCHES = 5
"""After this many batches of samples without success, the full row is sent."""
BATCH_GROWTH = 4
MAX_BATCH = 4096
"""Each batch of samples is BATCH_GROWTH times as large as the previous one, up to MAX_BATCH."""


@dataclass(frozen=True)
class TargetRow:
    """The part of the target's row that the cloud sends.

    Attributes:
        p: Probabilities of `tokens`, or of the whole vocabulary.
        tokens: Listed ids; None: p is the full row.
        samples: How many of the last tokens are i.i.d. samples of p outside the entries listed before them or in an
            earlier reply.
        tail: Total probability of all tokens that are not listed; 0: none of them is possible.
    """

    p: Tensor
    tokens: list[int] | None = None
    samples: int = 0
    tail: float = 0.0


def describe_row(p: Tensor, recovery: Recovery, size: int, seed: int, position: int, batch: int) -> TargetRow:
    """The part of the row p [vocab] at an answer position to send. batch: how often the edge has asked for more.

    size: number of samples (SAMPLES) or entries (SPARSE, TRUNCATED) to send first.
    """
    support = torch.nonzero(p > 0)[:, 0]
    if recovery is Recovery.TRUNCATED and size < support.shape[0]:
        best, indices = torch.topk(p, size)
        return TargetRow(best, indices.tolist())
    if recovery is Recovery.SAMPLES and batch < MAX_BATCHES:
        return _with_samples(p, [], _sample_numbers(size, seed, position, batch), batch)
    if recovery is Recovery.SPARSE and batch < MAX_BATCHES and size < support.shape[0]:
        listed = torch.topk(p, size).indices.tolist()
        return _with_samples(p, listed, _sample_numbers(SPARSE_SAMPLES, seed, position, batch), batch)
    if 2 * support.shape[0] < p.shape[0]:  # an id and a probability take twice the bytes of a probability
        return TargetRow(p[support], support.tolist())
    return TargetRow(p)


def _sample_numbers(first: int, seed: int, position: int, batch: int) -> list[float]:
    """The uniform numbers for the samples of a batch; no number is used twice at a position."""
    sizes = [max(first, min(first * BATCH_GROWTH**n, MAX_BATCH)) for n in range(batch + 1)]
    return uniforms(seed, Purpose.THIN, position, sizes[-1], sum(sizes[:-1]))


def _with_samples(p: Tensor, listed: list[int], numbers: list[float], batch: int) -> TargetRow:
    """The listed entries (omitted after the first batch), and one sample of the others for each number."""
    others = p.double().clone()
    others[listed] = 0.0
    samples = draw_many(others, numbers) if bool((others > 0).any()) else []
    tokens = [*([] if batch else listed), *samples]
    return TargetRow(p[tokens], tokens, len(samples), max(0.0, min(1.0, float(others.sum()))))


class EdgeRecovery:
    """Draws the recovered token of one rejection on the edge. q [vocab]: the draft's row at that position."""

    def __init__(self, q: Tensor, seed: int, position: int) -> None:
        self._q = q
        self._seed = seed
        self._position = position
        self._used = 0
        self._listing: Listing | None = None

    def token(self, row: TargetRow) -> int | None:
        """The recovered token; None if more of the row is needed. Raises ProtocolError for an invalid row."""
        self._check(row)
        if row.tokens is not None and row.tail > 0.0:
            return self._walk(row.tokens, row.p.tolist(), row.samples, row.tail)
        p = row.p
        if row.tokens is not None:
            p = torch.zeros(self._q.shape[0], dtype=row.p.dtype)
            p[row.tokens] = row.p
        if not bool((p > 0).any()):
            raise ProtocolError("a row is not a distribution over the vocabulary")
        if self._listing is not None:
            return recover_from_rest(p, self._listing.tokens, self._q, self._numbers(3))
        return draw(recovery_distribution(p, self._q), self._numbers(1)[0])

    def _walk(self, tokens: list[int], p: list[float], samples: int, tail: float) -> int | None:
        """Continue the walk of proposals; the first row of a rejection also creates the listing."""
        listed = len(tokens) - samples
        if self._listing is None:
            self._listing = make_listing(tokens[:listed], p[:listed], tail, self._q)
            found = self._listing.step(self._numbers(1)[0])
            if found is not None:
                return found
        elif listed:
            raise ProtocolError("a row may list entries only in its first part")
        numbers = self._numbers(2 * samples)
        return recover_from_samples(self._listing, tokens[listed:], p[listed:], self._q, numbers)

    def _check(self, row: TargetRow) -> None:
        vocab = self._q.shape[0]
        if row.tokens is not None and any(not 0 <= token < vocab for token in row.tokens):
            raise ProtocolError(f"a row names tokens outside the vocabulary of {vocab}")
        if row.tokens is not None and row.samples > len(row.tokens):
            raise ProtocolError(f"a row of {len(row.tokens)} entries cannot have {row.samples} samples")
        if (row.tokens is None and row.p.shape[0] != vocab) or not bool((row.p >= 0).all()):
            raise ProtocolError("a row is not a distribution over the vocabulary")

    def _numbers(self, count: int) -> Sequence[float]:
        numbers = uniforms(self._seed, Purpose.RECOVER, self._position, count, self._used)
        self._used += count
        return numbers

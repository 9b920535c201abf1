# SPDX-License-Identifier: Apache-2.0
"""The integers of one forward pass: each row's token, position and cache.

Plain arithmetic on the host. KV caches stay in their sessions: a batch holds each cache's address and capacity, so that
one launch of a kernel serves all sessions, and sessions join or leave without copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from torch import Tensor

from specdec.models.attention.segment import Segment

BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MAX_ROWS = BUCKETS[-1]
TILE = 8
MAX_NODES = 256
"""Most nodes of one session's tree in a mask."""


class BatchRow(IntEnum):
    """The first lines of `Batch.numbers`: one value per row."""

    ID = 0
    ROPE = 1
    """Rotary position."""
    SLOT = 2
    """Slot of the row's key and value in its cache."""
    POSITION = 3
    """Index in the sequence; differs from SLOT for tree nodes. Used for sliding windows."""
    CACHE = 4
    """Address of the session's cache."""
    CAPACITY = 5
    """Slots of that cache."""


class Tile(IntEnum):
    """The other lines: one value per tile. A tile with COUNT 0 is unused."""

    FIRST = 6
    COUNT = 7
    TOTAL = 8
    """Slots filled after this pass."""
    COMMITTED = 9
    """Slots before the tree."""
    NODES = 10
    """Tree nodes; 0 for a chain, whose rows see all slots up to their own."""


LINES = len(BatchRow) + len(Tile)


@dataclass(frozen=True)
class Batch:
    """The integers of one pass.

    numbers: int64 [LINES, bucket]. mask: uint8 [bucket, MAX_NODES], which tree nodes a row sees; None without trees.
    rows: rows without padding. caches: the cache of each tile, for the reference operations, which cannot use
    addresses.
    """

    numbers: npt.NDArray[np.int64]
    mask: npt.NDArray[np.uint8] | None
    rows: int
    caches: tuple[Tensor, ...]

    @property
    def bucket(self) -> int:
        """Rows of the recorded pass for this batch."""
        return int(self.numbers.shape[1])


def bucket_of(rows: int) -> int:
    """The smallest bucket with room for `rows` (1 to MAX_ROWS)."""
    place = bisect_left(BUCKETS, rows)
    return BUCKETS[place]


def fits(segment: Segment, windows: Collection[int]) -> bool:
    """Whether a segment can be laid out: its positions are integers, its tree fits the mask, and no sliding window cuts
    through the tree.
    """
    if isinstance(segment.positions, Tensor):
        return False
    if segment.tree is None:
        return True
    deepest = max(segment.depths) + 1
    return len(segment.depths) <= MAX_NODES and not any(0 < window <= deepest for window in windows)


def lay_out(segments: Sequence[Segment], ids: Sequence[Sequence[int]], unused: Tensor) -> Batch:
    """Lay out the rows of several sessions, one session after another.

    Args:
        segments: Each session's rows.
        ids: Each session's token ids; empty if its rows come as hidden states.
        unused: A cache that belongs to no session, for padding rows to write to.
    """
    rows = sum(segment.rows for segment in segments)
    bucket = bucket_of(rows)
    numbers = np.zeros((LINES, bucket), dtype=np.int64)
    numbers[BatchRow.CACHE] = unused.data_ptr()
    numbers[BatchRow.CAPACITY] = unused.shape[3]
    mask = None
    caches: list[Tensor] = []
    row = 0
    for segment, tokens in zip(segments, ids, strict=True):
        end = row + segment.rows
        slots = np.arange(segment.past, segment.total)
        if len(tokens):
            numbers[BatchRow.ID, row:end] = tokens
        numbers[BatchRow.ROPE, row:end] = segment.positions
        numbers[BatchRow.SLOT, row:end] = slots
        numbers[BatchRow.POSITION, row:end] = slots
        numbers[BatchRow.CACHE, row:end] = segment.cache.data_ptr()
        numbers[BatchRow.CAPACITY, row:end] = segment.cache.shape[3]
        nodes = 0
        if segment.tree is not None:
            nodes = len(segment.depths)
            numbers[BatchRow.POSITION, row:end] = segment.committed + np.array(
                segment.depths[-segment.rows :]
            )
            if mask is None:
                mask = np.zeros((bucket, MAX_NODES), dtype=np.uint8)
            mask[row:end, :nodes] = segment.tree.numpy()
        for first in range(row, end, TILE):
            count = min(TILE, end - first)
            total = segment.total if nodes else segment.past + first - row + count
            numbers[len(BatchRow) :, len(caches)] = (first, count, total, segment.committed, nodes)
            caches.append(segment.cache)
        row = end
    return Batch(numbers, mask, rows, tuple(caches))

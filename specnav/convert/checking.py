# SPDX-License-Identifier: Apache-2.0
"""Reads a GGUF file back and compares every number with the folder's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGUFReader, ReaderTensor
from numpy.typing import NDArray

from specnav.convert.content import Content, Planned
from specnav.convert.kinds import GgufKind
from specnav.convert.writing import stretches
from specnav.errors import UsageError

Floats = NDArray[np.float32]


@dataclass
class ComparedTensors:
    """Comparison of all tensors of one type: counts of tensors, numbers and bytes.

    worst: largest error, relative to the largest number of its block. distance, weight: sums of squares of the errors
    and of the numbers.
    """

    kind: GgufKind
    tensors: int = 0
    numbers: int = 0
    size: int = 0
    worst: float = 0.0
    distance: float = 0.0
    weight: float = 0.0

    @property
    def rms(self) -> float:
        """Root mean square of the errors, relative to that of the numbers."""
        return math.sqrt(self.distance / self.weight) if self.weight else 0.0


def check(content: Content, path: Path, advance: Callable[[], None]) -> list[ComparedTensors]:
    """Compare a file with its planned content; returns one result per type, the coarsest last.

    advance: called after each tensor. Raises UsageError for the first missing or wrong tensor.
    """
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"the file that was written cannot be read back ({error}): check the disk"
        ) from error
    there = {one.name: one for one in reader.tensors}
    found: dict[str, ComparedTensors] = {}
    for one in content.tensors:
        _compare(one, there.pop(one.name, None), found.setdefault(one.kind.name, ComparedTensors(one.kind)))
        advance()
    if there:
        raise UsageError(
            f"the file that was written holds {min(there)}, which was not written: check the disk"
        )
    return sorted(found.values(), key=lambda one: one.kind.share)


def _compare(planned: Planned, written: ReaderTensor | None, sums: ComparedTensors) -> None:
    if written is None:
        raise UsageError(f"{planned.name} was not written: check the disk")
    shape = tuple(int(one) for one in reversed(written.shape))
    if written.tensor_type != planned.kind.type or shape != planned.shape:
        raise UsageError(
            f"{planned.name} was written as {written.tensor_type.name} {_sizes(shape)} instead of "
            f"{planned.kind.name} {_sizes(planned.shape)}"
        )
    right = planned.read()
    width = planned.shape[-1]
    rows = right.reshape(-1, width)
    stored = written.data.reshape(rows.shape[0], -1)
    for start, stop in stretches(rows.shape[0], width):
        known = rows[start:stop].to(torch.float32).numpy()
        _compare_rows(planned, known, _unpacked(stored[start:stop], planned.kind), sums)
    sums.tensors += 1
    sums.numbers += right.numel()
    sums.size += planned.size


def _unpacked(stored: NDArray[Any], kind: GgufKind) -> Floats:
    found: Floats = gguf.dequantize(np.ascontiguousarray(stored), kind.type).astype(np.float32, copy=False)
    return found


def _compare_rows(planned: Planned, known: Floats, found: Floats, sums: ComparedTensors) -> None:
    if not np.isfinite(known).all():
        raise UsageError(
            f"{planned.name} has numbers in the folder that are not finite: the checkpoint is damaged"
        )
    kind = planned.kind
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(found - known).reshape(-1, kind.block)
    largest = np.abs(known).reshape(-1, kind.block).max(axis=1, keepdims=True)
    allowed = kind.share * largest + kind.slack
    if not (distance <= allowed).all():  # false also for values that are not finite
        raise UsageError(
            f"{planned.name} read back as {kind.name} is off by {float(np.nanmax(distance)):.3g}, more than its type "
            "explains: give another --type, or check the disk"
        )
    # Leave out blocks so small that the rounding of the scale itself dominates.
    full = largest[:, 0] > (kind.slack / kind.share if kind.share else 0.0)
    shares = distance[full] / largest[full]
    sums.worst = max(sums.worst, float(shares.max(initial=0.0)))
    sums.distance += float(np.square(distance, dtype=np.float64).sum())
    sums.weight += float(np.square(known, dtype=np.float64).sum())


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))

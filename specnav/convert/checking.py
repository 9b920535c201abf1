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
    """Tensors of one type: how many, of how many numbers and bytes. worst: the largest distance as a share of the
    largest number of its block. distance, weight: sums of squares, of the distances and of the numbers.
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
        """The root of the mean square of distances, as a share of that of the numbers."""
        return math.sqrt(self.distance / self.weight) if self.weight else 0.0


def check(content: Content, path: Path, advance: Callable[[], None]) -> list[ComparedTensors]:
    """Compare a file with what it should hold; by type, the coarsest last. advance: called behind each tensor.

    Raises UsageError for the first tensor that is not there, or not what it should be.
    """
    try:
        reader = GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"the file that was written cannot be read back ({error}): is the disk sound?"
        ) from error
    there = {one.name: one for one in reader.tensors}
    found: dict[str, ComparedTensors] = {}
    for one in content.tensors:
        _compare(one, there.pop(one.name, None), found.setdefault(one.kind.name, ComparedTensors(one.kind)))
        advance()
    if there:
        raise UsageError(
            f"the file that was written holds {min(there)}, which were not written: check the disk"
        )
    return sorted(found.values(), key=lambda one: one.kind.share)


def _compare(planned: Planned, written: ReaderTensor | None, sums: ComparedTensors) -> None:
    if written is None:
        raise UsageError(f"{planned.name} was not written: is the disk sound?")
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
            f"{planned.name} holds numbers that are not finite in the folder: it was saved broken"
        )
    kind = planned.kind
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(found - known).reshape(-1, kind.block)
    largest = np.abs(known).reshape(-1, kind.block).max(axis=1, keepdims=True)
    allowed = kind.share * largest + kind.slack
    if not (distance <= allowed).all():  # what is not finite is not within anything
        raise UsageError(
            f"{planned.name} read back as {kind.name} is off by {float(np.nanmax(distance)):.3g}, more than its type "
            "explains: give another --type, or look at the disk"
        )
    # Of blocks that are not so small that the steps of a scale itself show.
    full = largest[:, 0] > (kind.slack / kind.share if kind.share else 0.0)
    shares = distance[full] / largest[full]
    sums.worst = max(sums.worst, float(shares.max(initial=0.0)))
    sums.distance += float(np.square(distance, dtype=np.float64).sum())
    sums.weight += float(np.square(known, dtype=np.float64).sum())


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))

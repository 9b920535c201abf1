# SPDX-License-Identifier: Apache-2.0
"""Number types of GGUF files, and the largest error that each may have."""

from __future__ import annotations

import math
from dataclasses import dataclass

import gguf
from gguf import GGMLQuantizationType, LlamaFileType

from specnav.errors import UsageError

_HALF_STEP = 2.0**-24
"""Smallest step of float16, the type of scales; anything smaller is lost."""


@dataclass(frozen=True)
class GgufKind:
    """A number type.

    share: allowed error of a number, relative to the largest one of its block. steps: how many times the rounding of a
    scale may add to it. file_type: the type of a file that mostly uses it.
    """

    name: str
    type: GGMLQuantizationType
    file_type: LlamaFileType
    share: float
    steps: int

    @property
    def block(self) -> int:
        """How many numbers share a scale; 1 without scales."""
        return gguf.GGML_QUANT_SIZES[self.type][0]

    @property
    def quantised(self) -> bool:
        """Whether numbers are stored in whole blocks only."""
        return self.block > 1

    def size(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape."""
        block, taken = gguf.GGML_QUANT_SIZES[self.type]
        return math.prod(shape) // block * taken

    @property
    def slack(self) -> float:
        """Allowed absolute error of a number of any size."""
        return self.steps * _HALF_STEP


# A step is the block's largest number over 127, 16 or 8 (with an offset, its range over 31 or 15). The error is at most
# half a step, or a whole step at the end of the range that the scale does not reach (q4_0, q5_0).
F32 = GgufKind("f32", GGMLQuantizationType.F32, LlamaFileType.ALL_F32, 0.0, 0)
F16 = GgufKind("f16", GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16, 2.0**-11, 1)
BF16 = GgufKind("bf16", GGMLQuantizationType.BF16, LlamaFileType.MOSTLY_BF16, 2.0**-8, 0)
Q8_0 = GgufKind("q8_0", GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0, 0.5 / 127 + 2.0**-11, 127)
Q5_1 = GgufKind("q5_1", GGMLQuantizationType.Q5_1, LlamaFileType.MOSTLY_Q5_1, 1 / 31 + 2.0**-9, 32)
Q5_0 = GgufKind("q5_0", GGMLQuantizationType.Q5_0, LlamaFileType.MOSTLY_Q5_0, 1 / 16 + 2.0**-9, 16)
Q4_1 = GgufKind("q4_1", GGMLQuantizationType.Q4_1, LlamaFileType.MOSTLY_Q4_1, 1 / 15 + 2.0**-9, 16)
Q4_0 = GgufKind("q4_0", GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0, 1 / 8 + 2.0**-9, 8)
KINDS = {kind.name: kind for kind in (F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0)}
_SMALL = (Q5_1, Q5_0, Q4_1, Q4_0)


def kind_named(name: str) -> GgufKind:
    """The number type of this name. Raises UsageError for one that cannot be written here."""
    found = KINDS.get(name.lower())
    if found is None:
        raise UsageError(
            f"type {name!r} is unknown here: choose {', '.join(KINDS)} (others: llama.cpp's own quantize)"
        )
    return found


def kind_of_head(kind: GgufKind) -> GgufKind:
    """The type of the LM head: finer than a coarse `kind`, as in llama.cpp, because the head decides the tokens."""
    return Q8_0 if kind in _SMALL else kind


def kind_of_tower(kind: GgufKind) -> GgufKind:
    """The type of a vision tower: never quantised, because it runs once per answer and suffers most from rounding."""
    return F16 if kind.quantised else kind


def kind_of_tensor(wanted: GgufKind, name: str, shape: tuple[int, ...]) -> GgufKind:
    """The type of a tensor: float32 for vectors and norms, float16 for rows that are not a multiple of the block."""
    if len(shape) <= 1 or name.endswith("_norm.weight"):
        return F32
    return F16 if shape[-1] % wanted.block else wanted

# SPDX-License-Identifier: Apache-2.0
"""Number types that a GGUF file can be written in, and how far each may leave the numbers it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import gguf
from gguf import GGMLQuantizationType, LlamaFileType

from specnav.errors import UsageError

_HALF_STEP = 2.0**-24
"""The smallest step of float16, in which scales are kept: what is smaller is lost."""


@dataclass(frozen=True)
class GgufKind:
    """A number type. share: how far a number may be off, as a share of the largest one of its block. steps: how many
    times a scale's own rounding may count. file_type: of a file that is mostly of it.
    """

    name: str
    type: GGMLQuantizationType
    file_type: LlamaFileType
    share: float
    steps: int

    @property
    def block(self) -> int:
        """Numbers that share a scale; 1: each is by itself."""
        return gguf.GGML_QUANT_SIZES[self.type][0]

    @property
    def quantised(self) -> bool:
        """Whether it takes whole blocks only."""
        return self.block > 1

    def size(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor."""
        block, taken = gguf.GGML_QUANT_SIZES[self.type]
        return math.prod(shape) // block * taken

    @property
    def slack(self) -> float:
        """What a number may be off whatever its size."""
        return self.steps * _HALF_STEP


# A step is the block's largest number over 127, 16 or 8 (its range over 31 or 15 with an offset); a number is off by
# half of it, or by a whole one at the end of the range that the scale does not reach (q4_0, q5_0).
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
    """Raises UsageError for a type that cannot be written here."""
    found = KINDS.get(name.lower())
    if found is None:
        raise UsageError(
            f"type {name!r} is unknown here: choose {', '.join(KINDS)} (others: llama.cpp's own quantize)"
        )
    return found


def kind_of_head(kind: GgufKind) -> GgufKind:
    """Of the LM head: it decides tokens, and llama.cpp keeps it finer than the rest where that is coarse."""
    return Q8_0 if kind in _SMALL else kind


def kind_of_tower(kind: GgufKind) -> GgufKind:
    """Of a vision tower: it runs once an answer and suffers most from rounding."""
    return F16 if kind.quantised else kind


def kind_of_tensor(wanted: GgufKind, name: str, shape: tuple[int, ...]) -> GgufKind:
    """What a tensor gets: vectors and norms stay float32, and a row that is not a number of whole blocks float16."""
    if len(shape) <= 1 or name.endswith("_norm.weight"):
        return F32
    return F16 if shape[-1] % wanted.block else wanted

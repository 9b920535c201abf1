# SPDX-License-Identifier: Apache-2.0
"""The planned content of a GGUF file, before any weights are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguf import GGUFWriter
from torch import Tensor

from specnav.convert.kinds import GgufKind


@dataclass(frozen=True)
class Planned:
    """A planned tensor. name, shape: in the file, rows first. read: returns its numbers in a floating-point type."""

    name: str
    shape: tuple[int, ...]
    kind: GgufKind
    read: Callable[[], Tensor]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self.kind.size(self.shape)


@dataclass(frozen=True)
class Content:
    """A planned file. describe: writes its metadata. notes: remarks for the user, one line each."""

    arch: str
    kind: GgufKind
    describe: Callable[[GGUFWriter], None]
    tensors: tuple[Planned, ...]
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        return sum(one.size for one in self.tensors)

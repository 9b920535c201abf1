# SPDX-License-Identifier: Apache-2.0
"""What a GGUF file is to hold, before anything of it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguf import GGUFWriter
from torch import Tensor

from specnav.convert.kinds import GgufKind


@dataclass(frozen=True)
class Planned:
    """A tensor. name, shape: in the file, rows first. read: its numbers, in a floating-point type."""

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
    """A file. describe: writes its metadata. notes: what a user should know of it, a line each."""

    arch: str
    kind: GgufKind
    describe: Callable[[GGUFWriter], None]
    tensors: tuple[Planned, ...]
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        return sum(one.size for one in self.tensors)

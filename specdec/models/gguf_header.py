# SPDX-License-Identifier: Apache-2.0
"""Reads the header of a GGUF file, its metadata and tensor offsets, without llama.cpp.

The header is checked before it is used; nothing in the file is executed.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from specdec.errors import ModelError
from specdec.settings_files import check_regular

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_ALIGNMENT, _MOST_AXES = 32, 4


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor. shape: rows first. kind: GGML's type number. offset: bytes from the file's beginning."""

    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file. metadata: numbers, strings, and lists of them. tensors: places by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, TensorPlace]


class _Reading:
    """A cursor in a mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{count}{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{count}{code}")
        return found

    def text(self) -> str:
        (length,) = self.numbers("Q")
        if length > len(self.data) - self.at:
            raise ValueError("a text longer than the file")
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(_SCALARS[kind])[0]
        (inner,), (count,) = self.numbers("I"), self.numbers("Q")
        if count > len(self.data) - self.at:
            raise ValueError("a list longer than the file")
        if inner in _SCALARS:
            return list(self.numbers(_SCALARS[inner], count))
        return [self.value(inner) for _ in range(count)]


def read_header(path: Path) -> Header:
    """Read the header. Raises ModelError for a file that is not a complete GGUF file."""
    try:
        check_regular(path)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _header(path, _Reading(data))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give a GGUF file") from error
    except (ValueError, KeyError, struct.error, RecursionError, MemoryError) as error:
        raise ModelError(f"{path} is not a complete GGUF file ({error}): copy or convert it again") from error


def _header(path: Path, reading: _Reading) -> Header:
    if reading.data[:4] != _MAGIC:
        raise ValueError("wrong magic number")
    reading.at = 4
    (version,) = reading.numbers("I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version}")
    tensor_count, value_count = reading.numbers("Q", 2)
    metadata = {}
    for _ in range(value_count):
        key = reading.text()
        metadata[key] = reading.value(reading.numbers("I")[0])
    places = {}
    for _ in range(tensor_count):
        name = reading.text()
        (axes,) = reading.numbers("I")
        if not 1 <= axes <= _MOST_AXES:
            raise ValueError(f"a tensor of {axes} axes")
        shape = tuple(reversed(reading.numbers("Q", axes)))
        (kind,), (offset,) = reading.numbers("I"), reading.numbers("Q")
        places[name] = TensorPlace(shape, kind, offset)
    step = metadata.get("general.alignment", _ALIGNMENT)
    if not isinstance(step, int) or step < 1:
        raise ValueError("an invalid alignment")
    start = -(-reading.at // step) * step
    moved = {name: TensorPlace(one.shape, one.kind, start + one.offset) for name, one in places.items()}
    return Header(path, metadata, moved)

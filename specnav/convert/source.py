# SPDX-License-Identifier: Apache-2.0
"""Reads a model folder's weights, one tensor at a time, under the names that transformers uses today."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.errors import DECODE_ERRORS, first_line
from specdec.models.shared import shared_of
from specnav.errors import UsageError

_NUMBERS = (torch.float32, torch.float16, torch.bfloat16)
_WRITTEN = ("F32", "F16", "BF16")


class Source:
    """The safetensors files of a folder. Only requested tensors are read."""

    def __init__(self, folder: Path) -> None:
        """Read the names and shapes of the weights.

        Raises UsageError if there are no weights, or if they are quantised or damaged. Raises ModelError for a draft
        that shares weights of a missing target.
        """
        self.folder = folder
        self._files: dict[str, tuple[Path, str]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in _weight_files(folder):
            for name, kind, shape in _tensors_of(path):
                if kind not in _WRITTEN:
                    raise UsageError(
                        f"{path.name} holds {name} in {kind}: a quantised checkpoint cannot be converted, use the "
                        "one it was made from"
                    )
                self._files[name_today(name)] = path, name
                self._shapes[name_today(name)] = shape
        shared = shared_of(folder)
        for name, (path, there) in () if shared is None else shared.files.items():
            self._files[name] = path, there
            with _opened(path) as file:
                self._shapes[name] = tuple(file.get_slice(there).get_shape())

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __contains__(self, name: str) -> bool:
        return name in self._shapes

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an existing tensor."""
        return self._shapes[name]

    def read(self, name: str) -> Tensor:
        """Read a tensor in its stored type: float32, float16 or bfloat16. Raises UsageError if the file changed."""
        path, stored = self._files[name]
        with _opened(path) as file:
            tensor: Tensor = file.get_tensor(stored)
        if tensor.dtype not in _NUMBERS or tuple(tensor.shape) != self._shapes[name]:
            raise UsageError(f"{path} has changed while it was read: convert again")
        return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file. Raises UsageError if it cannot be read; faults of our own code pass unchanged."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise UsageError(_unreadable(path, first_line(error))) from error


def _tensors_of(path: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    """Name, number type and shape of each tensor in a file. Raises UsageError."""
    with _opened(path) as file:
        slices = [(name, file.get_slice(name)) for name in file.keys()]  # noqa: SIM118 (not a dict)
        return [(name, one.get_dtype(), tuple(one.get_shape())) for name, one in slices]


def _unreadable(path: Path, why: str) -> str:
    return f"{path} cannot be read ({why}): copy the folder anew"


def name_today(name: str) -> str:
    """The current name of a weight; vision-language checkpoints keep those of their publication, like `visual.`."""
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.language_model.", "model.", 1)


class _Index(msgspec.Struct):
    """What is read of a checkpoint's index: the file of each tensor."""

    weight_map: dict[str, str]


def _files_named(index: Path) -> list[str]:
    try:
        found = msgspec.json.decode(index.read_bytes(), type=_Index)
    except (OSError, *DECODE_ERRORS) as error:
        raise UsageError(_unreadable(index, first_line(error))) from error
    return sorted(set(found.weight_map.values()))


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        named = _files_named(index)
        missing = [name for name in named if not (folder / name).is_file()]
        if missing:
            raise UsageError(
                f"{folder} lacks {missing[0]}, which its index names: the checkpoint is incomplete"
            )
        return [folder / name for name in named]
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise UsageError(f"{folder} has no safetensors: give a Hugging Face folder with its weights")
    return found

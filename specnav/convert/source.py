# SPDX-License-Identifier: Apache-2.0
"""Reads a model folder's weights, one tensor at a time, under the names that transformers uses today."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.errors import first_line
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
            with _sound(path), safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    part = file.get_slice(name)
                    if part.get_dtype() not in _WRITTEN:
                        raise UsageError(
                            f"{path.name} holds {name} in {part.get_dtype()}: a quantised checkpoint cannot be "
                            "converted, use the one it was made from"
                        )
                    self._files[name_today(name)] = path, name
                    self._shapes[name_today(name)] = tuple(part.get_shape())
        shared = shared_of(folder)
        for name, path in () if shared is None else shared.files.items():
            self._files[name] = path, name
            with safe_open(path, framework="pt") as file:
                self._shapes[name] = tuple(file.get_slice(name).get_shape())

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
        with _sound(path), safe_open(path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(stored)
        assert tensor.dtype in _NUMBERS
        return tensor


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into UsageError."""
    try:
        yield
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise UsageError(f"{path} cannot be read ({first_line(error)}): copy the folder anew") from error


def name_today(name: str) -> str:
    """The current name of a weight; vision-language checkpoints keep those of their publication, like `visual.`."""
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.language_model.", "model.", 1)


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        with _sound(index):
            named = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
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

# SPDX-License-Identifier: Apache-2.0
"""Finds GGUF files by name, and checks them before llama.cpp reads them."""

from __future__ import annotations

import re
from pathlib import Path

from specdec.errors import ModelError
from specdec.models.gguf.options import GgufOptions
from specdec.settings_files import check_regular

MAGIC = b"GGUF"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
"""llama.cpp's file names for the parts of a split model."""


def gguf_file(name: str | Path) -> Path | None:
    """The GGUF file that a name refers to: the file itself, or the only one in a folder without other weights.

    None if the name refers to something else. Vision towers (mmproj…) do not count. Raises ModelError for a folder with
    several GGUF files.
    """
    path = Path(name)
    if path.suffix == ".gguf":
        return path
    if not path.is_dir() or any(path.glob("*.safetensors")):
        return None
    found = sorted(file for file in path.glob("*.gguf") if "mmproj" not in file.name)
    if len(found) > 1:
        raise ModelError(f"{path} holds {len(found)} GGUF files: name the one to use, e.g. {found[0]}")
    return found[0] if found else None


def check_options(draft: str | Path, options: GgufOptions) -> None:
    """Raise ModelError for GGUF options with another kind of draft: torch would ignore them silently."""
    if options != GgufOptions() and gguf_file(draft) is None:
        raise ModelError(f"gguf options need a GGUF file, and {draft} is not one: leave gguf out, or name a file")


def check_file(path: Path) -> None:
    """Raise ModelError unless `path` is a GGUF file and all its parts are there."""
    try:
        check_regular(*parts_of(path))
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give a GGUF file") from error
    if magic != MAGIC:
        raise ModelError(f"{path} is not a GGUF file: make one with `specnav convert gguf FOLDER`")
    _check_parts(path)


def parts_of(path: Path) -> list[Path]:
    """The files of a model, in order; only the file itself if the model is not split."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    stem, count = found[1], int(found[3])
    return [path.with_name(f"{stem}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)]


def _check_parts(path: Path) -> None:
    """Raise ModelError for a part that is not the first, or if other parts are missing from its folder."""
    parts = parts_of(path)
    if parts == [path]:
        return
    if path not in parts:
        raise ModelError(f"{path} is named as a part that does not exist: name the first, {parts[0]}")
    which = f"{path} is part {parts.index(path) + 1} of {len(parts)}"
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(f"{which}, and {missing[0]} is not beside it: copy all parts there")
    if path != parts[0]:
        raise ModelError(f"{which}: name the first, {parts[0]}")

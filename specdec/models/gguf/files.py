# SPDX-License-Identifier: Apache-2.0
"""Which names mean a GGUF file, and what may be said of one before llama.cpp reads it."""

from __future__ import annotations

import re
from pathlib import Path

from specdec.errors import ModelError
from specdec.models.gguf.options import GgufOptions

MAGIC = b"GGUF"
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
"""How llama.cpp names the files of a model that was split."""


def gguf_file(name: str | Path) -> Path | None:
    """The GGUF file that a name means: the file itself, or the only one in a folder without other weights.

    None where the name means something else. Vision towers (mmproj…) do not count. Raises ModelError for a folder with
    several.
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
    """Raises ModelError for options of a draft that is no GGUF file: torch would ignore them silently."""
    if options != GgufOptions() and gguf_file(draft) is None:
        raise ModelError(f"gguf options are of a GGUF file, and {draft} is none: leave gguf out, or name a file")


def check_file(path: Path) -> None:
    """Raises ModelError for what is not a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give a GGUF file") from error
    if magic != MAGIC:
        raise ModelError(f"{path} is not a GGUF file: make one with `specnav convert gguf FOLDER`")
    _check_parts(path)


def parts_of(path: Path) -> list[Path]:
    """The files of a model, in order: of one that was not split the file itself."""
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    stem, count = found[1], int(found[3])
    return [path.with_name(f"{stem}-{part:05d}-of-{count:05d}.gguf") for part in range(1, count + 1)]


def _check_parts(path: Path) -> None:
    """Raises ModelError for a part of a model that is not the first, or whose others are not beside it."""
    parts = parts_of(path)
    if parts == [path]:
        return
    if path not in parts:
        raise ModelError(f"{path} is named as a part that does not exist: name the first, {parts[0]}")
    which = f"{path} is part {parts.index(path) + 1} of {len(parts)}"
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(f"{which} and {missing[0]} is not beside it: copy all parts there")
    if path != parts[0]:
        raise ModelError(f"{which}: name the first, {parts[0]}")

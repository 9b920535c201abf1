"""Which names mean a GGUF file, and what may be said of one before llama.cpp reads it."""

from __future__ import annotations

from pathlib import Path

from specdec.errors import ModelError

MAGIC = b"GGUF"


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


def check_file(path: Path) -> None:
    """Raises ModelError for what is not a GGUF file."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give a GGUF file") from error
    if magic != MAGIC:
        raise ModelError(f"{path} is not a GGUF file: make one with `specnav convert gguf FOLDER`")

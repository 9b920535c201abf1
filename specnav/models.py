# SPDX-License-Identifier: Apache-2.0
"""A cheap check whether a command's argument can be a model, before anything is started or torch is imported."""

from __future__ import annotations

from pathlib import Path


def may_be_model(name: str) -> bool:
    """False for an absolute path that is neither a Hugging Face folder, a GGUF file, nor a folder with a GGUF file.

    A relative name may be a hub id; the loader reports whether it exists.
    """
    path = Path(name)
    if not path.is_absolute():
        return True
    if path.suffix == ".gguf":
        return path.is_file()
    return (path / "config.json").is_file() or any(path.glob("*.gguf"))

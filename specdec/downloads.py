# SPDX-License-Identifier: Apache-2.0
"""Where downloaded and shipped models are stored."""

from __future__ import annotations

import os
from pathlib import Path

_SHIPPED = "default_models"
_CODE = Path(__file__).resolve().parents[1]
IN_CLONE = (_CODE / "pyproject.toml").is_file() and (_CODE / _SHIPPED).is_dir()
DATA = _CODE if IN_CLONE else _CODE / "specnav" / "data"
"""Data shipped with the code: the root of a clone, or what setup.py has copied into a wheel."""


def shipped(name: str) -> str:
    """A model as documentation and results name the shipped ones, default_models/text-target, where it lies; any other
    name as it is. What the current directory has by this name comes first.
    """
    path = Path(name)
    if path.parts[:1] != (_SHIPPED,) or path.exists() or not (DATA / path).exists():
        return name
    return str(DATA / path)


def models_folder() -> Path:
    """The user's model cache: `specnav models get` stores each model there in a folder named after it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specnav" / "models"

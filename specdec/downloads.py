# SPDX-License-Identifier: Apache-2.0
"""Where downloaded and shipped models are stored."""

from __future__ import annotations

import os
from pathlib import Path

_SHIPPED = "default_models"
_CODE = Path(__file__).resolve().parents[1]
_WITH_CODE = (_CODE, _CODE / "specnav" / "data")
"""Folders with _SHIPPED: the root of a clone, or what setup.py has copied into a wheel."""


def shipped(name: str) -> str:
    """A model as documentation and results name the shipped ones, default_models/text-target, where it lies; any other
    name as it is. What the current directory has by this name comes first.
    """
    path = Path(name)
    if path.parts[:1] != (_SHIPPED,) or path.exists():
        return name
    return next((str(place / path) for place in _WITH_CODE if (place / path).exists()), name)


def models_folder() -> Path:
    """The user's model cache: `specnav models get` stores each model there in a folder named after it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specnav" / "models"

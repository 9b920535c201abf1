# SPDX-License-Identifier: Apache-2.0
"""Where downloaded models lie, for those that bring them and those that look for them."""

from __future__ import annotations

import os
from pathlib import Path


def models_folder() -> Path:
    """The user's cache of models, where `specnav models get` keeps each in a folder of its name."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specnav" / "models"

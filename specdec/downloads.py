# SPDX-License-Identifier: Apache-2.0
"""Where downloaded models are stored."""

from __future__ import annotations

import os
from pathlib import Path


def models_folder() -> Path:
    """The user's model cache: `specnav models get` stores each model there in a folder named after it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specnav" / "models"

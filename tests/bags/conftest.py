"""Puts the repository on the path: `pytest` does not, `python -m pytest` does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

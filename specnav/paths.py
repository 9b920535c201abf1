"""Where the clone keeps what commands use by default."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
RUNS = ROOT / "runs"
DEFAULT_TARGET = ROOT / "default_models" / "nav-target"
DEFAULT_DRAFT = ROOT / "default_models" / "nav-draft"
DEFAULT_TEXT_TARGET = ROOT / "default_models" / "text-target"
DEFAULT_TEXT_DRAFT = ROOT / "default_models" / "text-draft"

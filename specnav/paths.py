# SPDX-License-Identifier: Apache-2.0
"""Default locations of what commands use: in the root of a clone, or in an installed package.

An installed package works from any directory: its output and its processes use the current one.
"""

from __future__ import annotations

from pathlib import Path

from specdec.downloads import DATA, IN_CLONE

ROOT = DATA if IN_CLONE else Path.cwd()
"""Working directory of processes, and base of relative paths."""
CONFIG = DATA / "config"
MODELS = DATA / "default_models"
INTERFACES = DATA / ("ros2_ws/src/" if IN_CLONE else "") / "spec_vlm_nav_interfaces"
RUNS = ROOT / "runs"
DEFAULT_TARGET = MODELS / "nav-target"
DEFAULT_DRAFT = MODELS / "nav-draft"
DEFAULT_TEXT_TARGET = MODELS / "text-target"
DEFAULT_TEXT_DRAFT = MODELS / "text-draft"

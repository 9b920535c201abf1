# SPDX-License-Identifier: Apache-2.0
"""`specnav play`: from flags to the exit code."""

from __future__ import annotations

from specnav.errors import needs_ros
from specnav.play.config import PlayConfig
from specnav.terminal import RunView


def run_play(config: PlayConfig) -> int:
    """Play a bag; returns the exit code. Raises UsageError, EvaluationError."""
    with needs_ros("playing a bag", "specnav replay decides a bag's frames"):
        from specnav.play.live import play
    return play(config, RunView().say)

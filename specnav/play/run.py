# SPDX-License-Identifier: Apache-2.0
"""`specnav play`, from its flags to the exit code."""

from __future__ import annotations

import sys

from specnav.errors import UsageError
from specnav.play.config import PlayConfig


def run_play(config: PlayConfig) -> int:
    """Play a bag; returns the exit code. Raises UsageError, EvaluationError."""
    try:
        from specnav.play.live import play
    except ImportError as error:
        raise UsageError(
            f"playing a bag needs ROS 2 (rclpy): source an installation, or make setup ({error}); "
            "specnav replay decides a bag's frames without"
        ) from error
    return play(config, _say)


def _say(words: str) -> None:
    print(words, file=sys.stderr)

"""`specnav play`, from its flags to the exit code."""

from __future__ import annotations

import sys
from pathlib import Path

from specnav.errors import UsageError


def run_play(
    bag: Path,
    topics: tuple[str, ...],
    remaps: tuple[str, ...],
    rate: float,
    loop: bool,
    clock: bool,
    wait_s: float,
) -> int:
    """Play a bag; returns the exit code. Raises UsageError, EvaluationError."""
    try:
        from specnav.play.live import PlayConfig, play
    except ImportError as error:
        raise UsageError(
            f"playing a bag needs ROS 2 (rclpy): source an installation, or make setup ({error}); "
            "specnav replay decides a bag's frames without"
        ) from error
    return play(PlayConfig(bag, topics, remaps, rate, loop, clock, wait_s), _say)


def _say(words: str) -> None:
    print(words, file=sys.stderr)

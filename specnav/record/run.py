# SPDX-License-Identifier: Apache-2.0
"""Runs `specnav record`: checks the file name and records a live or a simulated robot."""

from __future__ import annotations

import sys

from specnav.bags.writing import check_name
from specnav.errors import needs_ros
from specnav.record.config import RecordConfig


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def run_record(config: RecordConfig) -> int:
    """Record; returns the exit code. Raises UsageError and the rooms' errors."""
    check_name(config.out, config.force)
    return run_simulated(config) if config.sim else run_live(config)


def run_simulated(config: RecordConfig) -> int:
    """Record simulated episodes; returns the exit code. Raises UsageError and the rooms' errors."""
    import torch

    from specdec.models import load_model
    from specnav.record.simulated import record_simulated

    torch.set_num_threads(1)
    model = load_model(config.target_model)
    frames, decisions = record_simulated(config, model, _say)
    _say(f"{config.out}: {frames} frames, {decisions} decisions; labels in {config.labels}")
    return 0


def run_live(config: RecordConfig) -> int:
    """Record until a signal or the end of the time; returns the exit code. Raises UsageError, EvaluationError."""
    with needs_ros("recording a live robot", "--sim works"):
        from specnav.record.live import record_live
    return record_live(config, _say)

# SPDX-License-Identifier: Apache-2.0
"""Runs `specnav record`: checks the file name and records a live or a simulated robot."""

from __future__ import annotations

import sys

from specdec.settings import changed_in
from specnav.bags.writing import check_name
from specnav.errors import UsageError, needs_ros
from specnav.record.config import RecordConfig
from specnav.results.errors import EvaluationError


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def run_record(config: RecordConfig) -> int:
    """Record; returns the exit code. Raises UsageError and other packages' errors."""
    check_name(config.out, config.force)
    if config.sim:
        if config.labels.exists() and not config.force:
            raise EvaluationError(f"{config.labels} exists already; give another name, or --force to replace it")
        run_simulated(config)
        return 0
    for told in changed_in(config):
        if told.name in ("episodes", "seed", "split", "about", "target_model"):
            raise UsageError(f"{told.spellings[0]} is for --sim: leave it out")
    with needs_ros("recording a live robot", "--sim works"):
        from specnav.record.live import record_live
    return record_live(config, _say)


def run_simulated(config: RecordConfig) -> None:
    """Record simulated episodes. Raises UsageError and other packages' errors."""
    import torch

    from specdec.models import load_model
    from specnav.record.simulated import record_simulated

    torch.set_num_threads(1)
    model = load_model(config.target_model)
    frames, decisions = record_simulated(config, model, _say)
    _say(f"{config.out}: {frames} frames, {decisions} decisions; labels in {config.labels}")

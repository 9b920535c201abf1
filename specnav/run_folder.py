# SPDX-License-Identifier: Apache-2.0
"""A run's folder: new and empty, or nothing is started."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from specnav.errors import UsageError
from specnav.paths import RUNS


def new_run_folder(out: Path | None, kind: str, now: datetime) -> Path:
    """`out`, or `runs/<kind>-<time>`, made if need be. Raises UsageError when it cannot be or holds something."""
    run = (out or RUNS / f"{kind}-{now:%Y%m%d-%H%M%S}").resolve()
    try:
        if run.exists() and any(run.iterdir()):
            raise UsageError(f"{run} is not empty; give a new folder with --out")
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot use {run} for the run: {error.strerror or error}; give another with --out"
        ) from error
    return run


def started_at() -> str:
    """Now, as results files record when a run began: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

# SPDX-License-Identifier: Apache-2.0
"""A run's output folder: it must be new, empty and used by one process only."""

from __future__ import annotations

import fcntl
import os
from datetime import datetime, timezone
from pathlib import Path

from specnav.errors import UsageError
from specnav.paths import RUNS

_claimed: dict[Path, int] = {}
"""Locks held by this process, by folder; the kernel releases them when the process ends."""


def claim(folder: Path) -> None:
    """Lock a folder until this process ends. Raises UsageError if another process holds the lock.

    On a file system without locks the folder is used unlocked.
    """
    if folder in _claimed:
        os.close(_claimed.pop(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(f"another process writes into {folder}: wait for it, or give another folder") from error
    except OSError:
        os.close(descriptor)
        return
    _claimed[folder] = descriptor


def new_run_folder(out: Path | None, kind: str) -> Path:
    """`out`, or `runs/<kind>-<time>`, created if necessary. Raises UsageError if it is unusable or not empty."""
    run = (out or RUNS / f"{kind}-{datetime.now():%Y%m%d-%H%M%S}").resolve()
    try:
        run.mkdir(parents=True, exist_ok=True)
        if any(run.iterdir()):
            raise UsageError(f"{run} is not empty; give a new folder with --out")
        claim(run)
    except OSError as error:
        raise UsageError(
            f"cannot use {run} for the run: {error.strerror or error}; give another with --out"
        ) from error
    return run


def started_at() -> str:
    """The current time in the form of results files: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

# SPDX-License-Identifier: Apache-2.0
"""A run's folder: new, empty and of one process, or nothing is started."""

from __future__ import annotations

import fcntl
import os
from datetime import datetime, timezone
from pathlib import Path

from specnav.errors import UsageError
from specnav.paths import RUNS

_claimed: dict[Path, int] = {}
"""Locks of this process, by folder; the kernel releases them when it ends, however it ends."""


def claim(folder: Path) -> None:
    """Lock a folder until this process ends. Raises UsageError where another process holds it.

    A file system that knows no locks is not an error: the folder is used without one.
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


def new_run_folder(out: Path | None, kind: str, now: datetime) -> Path:
    """`out`, or `runs/<kind>-<time>`, made if need be. Raises UsageError when it cannot be or holds something."""
    run = (out or RUNS / f"{kind}-{now:%Y%m%d-%H%M%S}").resolve()
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
    """Now, as results files record when a run began: UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

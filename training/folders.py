"""Folders that are there as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.errors import TrainingError

SETTINGS = "settings.json"


@contextmanager
def appearing_at_once(folder: Path) -> Iterator[Path]:
    """Gives an empty folder beside `folder` to write into, and puts it in its place when the block ends well.

    A reader never meets half a folder; after an error or a kill the former one is still there.
    """
    building = folder.with_name(folder.name + ".new")
    old = folder.with_name(folder.name + ".old")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    yield building
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    building.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def roomy(folder: Path) -> Iterator[None]:
    """Tells a disk that is full, or a folder that cannot be written, in one line. Raises TrainingError for it."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{folder} cannot be written ({error.strerror or error}): make room, then run the same command again "
            "to go on"
        ) from error


def keep_settings(run: Path, settings: str) -> None:
    """Note in a run's folder what it is made with. Raises TrainingError where it was made with anything else."""
    file = run / SETTINGS
    if file.exists() and file.read_text(encoding="utf-8") != settings:
        raise TrainingError(
            f"{run} holds a run with other settings: give the same ones, or another folder with --run"
        )
    file.write_text(settings, encoding="utf-8")

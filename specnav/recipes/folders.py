# SPDX-License-Identifier: Apache-2.0
"""Folders that are there as a whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specnav.recipes.errors import TrainingError

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


def check_place(out: Path, marks: Collection[str], **others: Path | str) -> None:
    """Refuse a folder for results that holds anything else, before any work is done.

    marks: a folder with one of these files in it, and without folders of its own, is an earlier result and may be
    replaced. others: by name, folders that must still be there afterwards. Raises TrainingError.
    """
    place = out.resolve()
    for name, other in others.items():
        kept = Path(other).resolve()
        if str(other) and kept.exists() and (kept == place or kept.is_relative_to(place)):
            raise TrainingError(f"--out {out} would replace --{name} {other}: give another folder")
        if str(other) and kept.exists() and place.is_relative_to(kept):
            raise TrainingError(f"--out {out} lies in --{name} {other}: give another folder")
    if not place.name:
        raise TrainingError(f"--out {out} cannot be replaced: give a folder of its own")
    if place.exists() and not place.is_dir():
        raise TrainingError(f"--out {out} is a file: give a folder")
    held = list(place.iterdir()) if place.exists() else []
    ours = any(entry.name in marks for entry in held) and not any(entry.is_dir() for entry in held)
    if held and not ours:
        raise TrainingError(f"--out {out} holds something else already: give a new folder, or an empty one")


@contextmanager
def roomy(place: Path) -> Iterator[None]:
    """Tells a disk that is full, or a place that cannot be written, in one line. Raises TrainingError for it."""
    try:
        yield
    except OSError as error:
        raise TrainingError(
            f"{place} cannot be written ({error.strerror or error}): make room, then run the same command again "
            "to go on"
        ) from error


def keep_settings(run: Path, settings: Mapping[str, Any]) -> None:
    """Note in a run's folder what it is made with. Raises TrainingError where the folder holds anything
    made with other settings; settings alone, of a run that was refused before it made anything, are replaced.
    """
    file, text = run / SETTINGS, json.dumps(settings, indent=1, default=str)
    has_begun = any(entry != file for entry in run.iterdir())
    if has_begun and file.exists() and file.read_text(encoding="utf-8") != text:
        raise TrainingError(
            f"{run} holds a run with other settings: give the same ones, or another folder with --run"
        )
    file.write_text(text, encoding="utf-8")

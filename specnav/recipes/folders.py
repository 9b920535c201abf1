# SPDX-License-Identifier: Apache-2.0
"""Folders that appear atomically, and checks of a run's folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specdec.settings_files import MOST_SETTINGS_BYTES, check_regular, read_file
from specdec.whole_files import write_whole
from specnav.errors import FULL
from specnav.recipes.errors import TrainingError
from specnav.results.errors import one_line
from specnav.run_folder import claim

SETTINGS = "settings.json"


@contextmanager
def appearing_at_once(folder: Path) -> Iterator[Path]:
    """Yield an empty folder next to `folder` to write into, and move it into place if the block succeeds.

    A reader never sees a partial folder; after an error or a kill the previous one still exists.
    """
    # Hidden names: a user may keep a copy as NAME.old.
    building, old = (folder.with_name(f".{folder.name}.{state}") for state in ("new", "old"))
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        yield building
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        building.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(building, ignore_errors=True)  # on a full disk it would take up the rest


@contextmanager
def replacing_model(folder: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """Like `appearing_at_once`, for a model folder; tells which GGUF files, made from the earlier weights, are gone."""
    converted = sorted(folder.glob("*.gguf"))
    with appearing_at_once(folder) as building:
        yield building
    for file in converted:
        say(f"{file}, made from the earlier weights, is gone: specnav convert gguf {folder} makes one again")


def check_place(out: Path, marks: Collection[str], **others: Path | str) -> None:
    """Raise TrainingError for an output folder that has other content, before any work is done.

    marks: a folder with one of these files and without subfolders is an earlier result, which may be replaced.
    others: folders, by option name, that must not be replaced.
    """
    place = out.resolve()
    for name, other in others.items():
        kept = Path(other).resolve()
        if str(other) and kept.exists() and (kept == place or kept.is_relative_to(place)):
            raise TrainingError(f"--out {out} would replace --{name} {other}: give another folder")
        if str(other) and kept.exists() and place.is_relative_to(kept):
            raise TrainingError(f"--out {out} lies in --{name} {other}: give another folder")
    if not place.name:
        raise TrainingError(f"--out {out} cannot be replaced: give a separate folder")
    above = next(folder for folder in (place, *place.parents) if folder.exists())
    if not above.is_dir():
        raise TrainingError(f"--out {out}: {above} is a file: give a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise TrainingError(f"--out {out} cannot be made: {above} cannot be written; give another folder")
    held = list(place.iterdir()) if place.exists() else []
    ours = any(entry.name in marks for entry in held) and not any(entry.is_dir() for entry in held)
    if held and not ours:
        raise TrainingError(f"--out {out} has other content: give a new or an empty folder")


@contextmanager
def roomy(place: Path) -> Iterator[None]:
    """Turn an error about a full disk, or one that cannot be written, into TrainingError with a one-line message."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and FULL not in str(error):
            raise
        why = getattr(error, "strerror", None) or one_line(error)
        what = "free some space, then run the same command again to continue" if FULL in why else "give another folder"
        raise TrainingError(f"{place} cannot be written ({why}): {what}") from error


def digest_of(files: Iterable[Path]) -> str:
    """Digest of data files, for the settings of a run: it keeps what it read, and must not be continued with others."""
    found = hashlib.sha256()
    for file in files:
        if file.is_file():  # whoever reads it tells what is missing
            found.update(hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def begin_run(config: Any, free: Collection[str], **also: str) -> None:
    """Make the run folder of a training's settings, and save them with `also`.

    free: settings that may change when a run is continued, which are not saved. Raises TrainingError, and UsageError if
    another process trains in this folder.
    """
    kept = {name: value for name, value in asdict(config).items() if name not in free}
    claim_run(config.run)
    with roomy(config.run):
        keep_settings(config.run, kept | also)


def claim_run(run: Path) -> None:
    """Make the run folder of a training. Raises TrainingError, and UsageError if another process trains in it."""
    with roomy(run):
        run.mkdir(parents=True, exist_ok=True)
        check_regular(run)
        claim(run.resolve())  # a second process would make the same files


def keep_settings(run: Path, settings: Mapping[str, Any], flag: str = "--run") -> None:
    """Save the settings in a run's folder, which the command takes with `flag`.

    Raises TrainingError if the folder has results of other settings. A folder with only settings is overwritten.
    """
    file, text = run / SETTINGS, json.dumps(settings, indent=1, default=str)
    has_begun = any(entry != file for entry in run.iterdir())
    if has_begun and file.exists() and read_file(file, MOST_SETTINGS_BYTES, links=True) != text.encode():
        raise TrainingError(
            f"{run} holds a run with other settings or data: give the same ones, or another folder with {flag}"
        )
    write_whole(file, text.encode())

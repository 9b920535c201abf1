# SPDX-License-Identifier: Apache-2.0
"""Finds black-box files and reads why each was written. Other messages are not read here."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mcap.reader import make_reader

from spec_vlm_nav.blackbox.box import METADATA
from spec_vlm_nav.blackbox.folder import NAME, PARTIAL, reason_of
from specdec.settings_files import check_regular
from specnav.errors import UsageError
from specnav.results.errors import one_line


@dataclass(frozen=True)
class Cause:
    """A trigger: its time (wall clock, ns), its keyword and details."""

    time_ns: int
    word: str
    detail: str


@dataclass(frozen=True)
class BoxFile:
    """One file. causes: its triggers; the file is named after the first. problem: why it cannot be read, or "".
    changed_ns: when it was last written (wall clock).
    """

    path: Path
    size: int
    reason: str
    causes: tuple[Cause, ...] = ()
    instruction: str = ""
    state: str = ""
    length_s: float = 0.0
    problem: str = ""
    changed_ns: int = 0


def find_files(folder: Path) -> list[Path]:
    """Black-box files in a folder and its subfolders (one per robot), oldest first. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}; give the value of blackbox_node's parameter folder")
    found = []
    for path in (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if NAME.fullmatch(path.name)):
        with suppress(FileNotFoundError):  # the robot has renamed or removed it meanwhile
            found.append((path.stat().st_mtime_ns, path.name, path))
    return [path for *_, path in sorted(found)]


def read_file(path: Path) -> BoxFile:
    """Read why a file was written. If it cannot be read, `problem` says why."""
    reason = reason_of(path)
    try:
        check_regular(path)
        about = path.stat()
    except OSError as error:  # the robot may have renamed or removed it meanwhile
        return BoxFile(path, 0, reason, problem=f"cannot be read: {error.strerror}")
    unread = BoxFile(path, about.st_size, reason, changed_ns=about.st_mtime_ns)
    if path.name.endswith(PARTIAL):
        problem = "writing was interrupted: remove .partial from its name, and specnav replay reads what was written"
        return replace(unread, problem=problem)
    try:
        with path.open("rb") as stream:
            reader = make_reader(stream)
            summary = reader.get_summary()
            said = next((one.metadata for one in reader.iter_metadata() if one.name == METADATA), None)
        if said is None or summary is None or summary.statistics is None:
            return replace(unread, problem="it does not state why it was written")
        span_ns = summary.statistics.message_end_time - summary.statistics.message_start_time
        causes = tuple(
            Cause(int(one["time_ns"]), str(one["word"]), str(one["detail"]))
            for one in json.loads(said["triggers"])
        )
        length_s = span_ns / 1e9
        words = said.get("instruction", ""), said.get("state", "")
        return BoxFile(path, about.st_size, said["reason"], causes, *words, length_s)
    except Exception as error:  # damaged files can raise any error
        return replace(unread, problem=f"cannot be read: {one_line(error)}")

# SPDX-License-Identifier: Apache-2.0
"""Finds black-box files and reads why each was written. Other messages are not read here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mcap.reader import make_reader

from spec_vlm_nav.blackbox.box import METADATA
from spec_vlm_nav.blackbox.folder import NAME, PARTIAL, reason_of
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
    """One file. causes: its triggers; the file is named after the first. problem: why it cannot be read, or ""."""

    path: Path
    size: int
    reason: str
    causes: tuple[Cause, ...] = ()
    instruction: str = ""
    state: str = ""
    length_s: float = 0.0
    problem: str = ""


def find_files(folder: Path) -> list[Path]:
    """Black-box files in a folder and its subfolders (one per robot), oldest first. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}; give the value of blackbox_node's parameter folder")
    found = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def read_file(path: Path) -> BoxFile:
    """Read why a file was written. If it cannot be read, `problem` says why."""
    size, reason = path.stat().st_size, reason_of(path)
    if path.name.endswith(PARTIAL):
        problem = "writing was interrupted: remove .partial from its name, and specnav replay reads what was written"
        return BoxFile(path, size, reason, problem=problem)
    try:
        with path.open("rb") as stream:
            reader = make_reader(stream)
            summary = reader.get_summary()
            said = next((one.metadata for one in reader.iter_metadata() if one.name == METADATA), None)
        if said is None or summary is None or summary.statistics is None:
            return BoxFile(path, size, reason, problem="it does not state why it was written")
        span_ns = summary.statistics.message_end_time - summary.statistics.message_start_time
        causes = tuple(
            Cause(int(one["time_ns"]), str(one["word"]), str(one["detail"]))
            for one in json.loads(said["triggers"])
        )
        length_s = span_ns / 1e9
        words = said.get("instruction", ""), said.get("state", "")
        return BoxFile(path, size, said["reason"], causes, *words, length_s)
    except Exception as error:  # damaged files can raise any error
        return BoxFile(
            path,
            size,
            reason,
            problem=f"cannot be read: {one_line(error)}",
        )

# SPDX-License-Identifier: Apache-2.0
"""Black-box files: finding them, and why each was written. The messages themselves are not read here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from spec_vlm_nav.blackbox.folder import NAME, PARTIAL, reason_of
from spec_vlm_nav.blackbox.recording import METADATA
from specnav.bags.mcap_storage import read_facts
from specnav.errors import UsageError
from specnav.results.errors import one_line


@dataclass(frozen=True)
class Cause:
    """A trigger: when (wall clock, ns), its word, what was said about it."""

    time_ns: int
    word: str
    detail: str


@dataclass(frozen=True)
class BoxFile:
    """One file. causes: the first is what the file is named after; problem: why it cannot be read, "" when it can."""

    path: Path
    size: int
    reason: str
    causes: tuple[Cause, ...] = ()
    instruction: str = ""
    state: str = ""
    length_s: float = 0.0
    problem: str = ""


def find_files(folder: Path) -> list[Path]:
    """Black-box files of a folder and of those in it (one a robot), oldest first. Raises UsageError."""
    if not folder.is_dir():
        raise UsageError(f"no folder {folder}; give the parameter folder of blackbox_node")
    found = [path for pattern in ("*", "*/*") for path in folder.glob(pattern) if NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name))


def read_file(path: Path) -> BoxFile:
    """Why a file was written. One that cannot be read says so in `problem`."""
    size, reason = path.stat().st_size, reason_of(path)
    if path.name.endswith(PARTIAL):
        problem = (
            "its writing was interrupted: without .partial at its end, specnav replay reads what there is"
        )
        return BoxFile(path, size, reason, problem=problem)
    try:
        said, span_ns = read_facts(path, METADATA)
        if not said or span_ns is None:
            return BoxFile(path, size, reason, problem="it does not say why it was written")
        causes = tuple(
            Cause(int(one["time_ns"]), str(one["word"]), str(one["detail"]))
            for one in json.loads(said["triggers"])
        )
        length_s = span_ns / 1e9
        words = said.get("instruction", ""), said.get("state", "")
        return BoxFile(path, size, said["reason"], causes, *words, length_s)
    except Exception as error:  # damaged bytes may say anything
        return BoxFile(
            path,
            size,
            reason,
            problem=f"cannot be read: {one_line(error)}",
        )

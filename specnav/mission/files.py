# SPDX-License-Identifier: Apache-2.0
"""Reads missions from the command line, as a file or a sentence, and displays them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from spec_vlm_nav.missions.reading import from_sentence, read
from spec_vlm_nav.missions.record import MissionPlan
from specdec.settings_files import read_file
from specdec.whole_files import check_replaceable
from specnav.errors import UsageError
from specnav.results.files import write_bytes_atomic
from specnav.terminal import plain, plain_table

MOST_BYTES = 400_000


def text_of(given: str) -> tuple[str, MissionPlan]:
    """The text of a mission and its plan, from a file or a sentence. Raises UsageError that lists every wrong
    line.
    """
    path = Path(given)
    try:
        # A word with a slash is a path even if no file exists there: it cannot be an instruction.
        named = path.suffix in (".yaml", ".yml") or (os.sep in given and not any(map(str.isspace, given)))
        if named or (len(given) < 200 and path.is_file()):
            text = read_file(path, MOST_BYTES, links=True).decode("utf-8")
            return text, read(text, str(path))
        return given, from_sentence(given)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: give a YAML file (UTF-8)") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}; give a YAML file or a sentence") from error


def show(results: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a mission's steps as a table on stdout."""
    table = plain_table(("step", "", "tries", "s", "m", "decisions", "how it ended"), ("", "how it ended"))
    for step in results["steps"]:
        said = " ".join(part for part in (step["code"], step["message"]) if part and part != "NONE")
        ended = step["progress"] + (f": {said}" if said else "")
        figures = (step["tries"], f"{step['elapsed_s']:.1f}", f"{step['distance_m']:.2f}", step["decisions"])
        words = (str(step["number"]), step["words"], *map(str, figures), ended)
        table.add_row(*map(plain, words))
    (console or Console()).print(table)


def show_plan(results: Mapping[str, Any]) -> None:
    """Print a mission's plan as a table on stdout."""
    table = plain_table(("step", "", "bounds", "retries", "if it fails"), ("", "bounds", "if it fails"))
    for step in results["steps"]:
        bounds = [f"{step[key]:g} {unit}" for key, unit in (("max_s", "s"), ("max_m", "m")) if step[key]]
        table.add_row(
            str(step["number"]),
            plain(step["words"]),
            ", ".join(bounds) or "the robot's own",
            str(step["retries"]),
            step["on_failure"],
        )
    Console().print(table)


def check_writable(out: Path) -> None:
    """Make the folder of a file of results. Raises OSError if that fails, or something else is in its place."""
    out.parent.mkdir(parents=True, exist_ok=True)
    check_replaceable(out)


def write(results: Mapping[str, Any], out: Path) -> None:
    """Write the results as JSON, atomically."""
    write_bytes_atomic(out, (json.dumps(results, ensure_ascii=False, indent=2) + "\n").encode())

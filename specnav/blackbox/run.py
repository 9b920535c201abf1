# SPDX-License-Identifier: Apache-2.0
"""Output of `specnav blackbox`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spec_vlm_nav.blackbox.folder import default_folder
from spec_vlm_nav.blackbox.triggers import one_line
from specnav.bags.source import open_bag
from specnav.bags.types import NEWEST
from specnav.blackbox.files import BoxFile, find_files, read_file
from specnav.blackbox.timeline import events
from specnav.errors import UsageError
from specnav.record.types import own_types

MB = 1e6
_RIGHT = ("s", "MB")


def _when(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns / 1e9).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a clock that was never set, or a damaged value
        return f"{time_ns} ns"


def list_files(folder: Path | None) -> int:
    """Print one line per file; returns the exit code. Raises UsageError."""
    folder = folder or default_folder()
    found = [read_file(path) for path in find_files(folder)]
    if not found:
        print(f"no black-box files in {folder}")
        return 0
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("when", "reason", "s", "MB", "file", "about"):
        table.add_column(title, justify="right" if title in _RIGHT else "left", overflow="fold")
    for one in found:
        when = _when(one.causes[0].time_ns if one.causes else one.changed_ns)
        more = f" and {len(one.causes) - 1} more" if len(one.causes) > 1 else ""
        about = one.problem or " – ".join(filter(None, (one.instruction, _first(one))))
        name = str(one.path.relative_to(folder))
        row = (
            when,
            f"{one.reason}{more}",
            f"{one.length_s:.1f}",
            f"{one.size / MB:.2f}",
            name,
            one_line(about),
        )
        table.add_row(*map(escape, row))
    total = sum(one.size for one in found) / MB
    # Do not fold lines if the output is not a terminal: other programs read it.
    console = Console()
    if not console.is_terminal:
        console = Console(width=400)
    console.print(table)
    print(f"{len(found)} files, {total:.1f} MB in {folder}")
    return 0


def _first(one: BoxFile) -> str:
    return one.causes[0].detail if one.causes else ""


def show_file(path: Path, folder: Path | None) -> int:
    """Print the timeline of a file; returns the exit code. Raises UsageError, EvaluationError."""
    inside = (folder or default_folder()) / path
    path = path if path.is_file() or not inside.is_file() else inside
    if not path.is_file():
        raise UsageError(f"no file {path}; specnav blackbox lists all files")
    one = read_file(path)
    bag = open_bag(path)
    notes: list[str] = []
    happened = events(bag, bag.topics, own_types(bag.distro or NEWEST), notes)
    zero_ns = one.causes[0].time_ns if one.causes else (happened[0].time_ns if happened else 0)
    print(f"{path.name}: {one.reason}, {one.length_s:.1f} s, {one.size / MB:.2f} MB, {bag.count} messages")
    for name, text in (("instruction", one.instruction), ("state", one.state), ("problem", one.problem)):
        if text:
            print(f"{name}: {one_line(text)}")
    for text in (bag.summary, *bag.warnings, *notes):
        print(f"note: {one_line(text)}")
    print(f"0 s is {_when(zero_ns)}")
    lines = [(e.time_ns, e.what, e.text) for e in happened]
    lines += [(cause.time_ns, ">>>", f"{cause.word} {cause.detail}") for cause in one.causes]
    for time_ns, what, text in sorted(lines, key=lambda line: line[0]):
        print(f"{(time_ns - zero_ns) / 1e9:+10.3f} s  {what:<14} {one_line(text)}".rstrip())
    return 0

# SPDX-License-Identifier: Apache-2.0
"""Shared terminal output of commands: lines and progress bars on stderr, tables on stdout."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class RunView:
    """Terminal output of one run."""

    def __init__(self, console: Console | None = None) -> None:
        """console: for lines and bars; tables go to stdout."""
        self.console = console or Console(stderr=True)

    def say(self, words: str) -> None:
        """Print one line."""
        say(self.console, words)


def say(console: Console, words: str) -> None:
    """Print one line verbatim: no markup, and never folded, so that it can be searched and copied."""
    console.print(plain(words), soft_wrap=True, highlight=False)


def plain(words: str) -> str:
    """Words without markup and control characters, which could rule the terminal: they may repeat foreign words."""
    return escape(_CONTROL.sub("?", words))


def progress_bar(console: Console, unit: str = "") -> Progress:
    """A progress bar with description, count (unit: of what) and elapsed time. It disappears when done."""
    units = (TextColumn(unit),) if unit else ()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *units,
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True)


def plain_table(titles: Sequence[str], words: Collection[str], title: str | None = None) -> Table:
    """A table without lines. words: titles of text columns; all other columns hold right-aligned figures."""
    found = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title)
    for name in titles:
        found.add_column(name, justify="left" if name in words else "right")
    return found

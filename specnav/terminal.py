# SPDX-License-Identifier: Apache-2.0
"""What commands show on the terminal: lines and bars on stderr, tables on stdout; the same look for all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


class RunView:
    """What the user sees of one run."""

    def __init__(self, console: Console | None = None) -> None:
        """console: where lines and bars go; tables go to stdout."""
        self.console = console or Console(stderr=True)

    def say(self, words: str) -> None:
        """One line."""
        say(self.console, words)


def say(console: Console, words: str) -> None:
    """One line as it is: nothing in it is markup, and it is never folded, so that it can be searched and copied."""
    console.print(escape(words), soft_wrap=True, highlight=False)


def progress_bar(console: Console, unit: str = "") -> Progress:
    """A bar: what is being done, how many of how many (of what: unit), for how long. It goes when it is over."""
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
    """A table without lines. words: the titles of columns that hold words; all others hold figures."""
    found = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title)
    for name in titles:
        found.add_column(name, justify="left" if name in words else "right")
    return found

# SPDX-License-Identifier: Apache-2.0
"""Terminal output of a drill: a progress bar on a terminal, plain lines elsewhere, and a table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from specnav.drill.definitions import Drill
from specnav.drill.results import DrillResults, DrillRun, FaultRow, LeakCheck
from specnav.report.page import shown
from specnav.terminal import RunView, plain_table, progress_bar

Advance = Callable[[DrillRun], None]
COLUMNS = ("fault", "passed", "stop ms p50", "p99", "bound", "reason ms", "back s", "reason")


class DrillView(RunView):
    """Terminal output of one drill run."""

    @contextmanager
    def drilling(self, count: int) -> Iterator[Advance]:
        """Show the progress of `count` runs; yields a function to call after each run."""
        if not self.console.is_terminal:
            done = 0

            def line(run: DrillRun) -> None:
                nonlocal done
                done += 1
                self.say(f"{done} of {count}: {in_words(run)}")

            yield line
            return
        with progress_bar(self.console) as bar:
            task = bar.add_task("drilling", total=count)

            def advance(run: DrillRun) -> None:
                bar.update(task, advance=1, description=run.fault)
                if not run.passed:
                    self.say(in_words(run))

            yield advance

    def finished(self, results: DrillResults, report: Path) -> None:
        """Print the results and the path of the report."""
        out = Console()
        if results.faults:
            out.print(fault_table(results.faults))
        for leak in results.leaks:
            out.print(leak_table(leak))
        self.say(f"report: {report}")


def in_words(run: DrillRun) -> str:
    """One run in one line."""
    stop = "" if run.stop_ms is None or not run.moving else f", stopped after {run.stop_ms:.0f} ms"
    why = f", {run.reason} after {run.reason_ms:.0f} ms" if run.reason_ms is not None else ""
    verdict = "passed" if run.passed else f"FAILED ({'; '.join(run.problems)})"
    return f"{run.fault}: {verdict}{stop}{why}"


def fault_table(rows: list[FaultRow]) -> Table:
    """The rows as a table for the terminal."""
    found = plain_table(COLUMNS, words=("fault", "reason"))
    for row in rows:
        colour = "" if row.passed == row.runs else "[red]"
        back = None if row.recovered_ms_p50 is None else row.recovered_ms_p50 / 1e3
        found.add_row(
            f"{colour}{row.fault}",
            f"{colour}{row.passed}/{row.runs}",
            shown(row.stop_ms_p50),
            shown(row.stop_ms_p99),
            shown(row.bound_ms),
            shown(row.reason_ms_p50),
            shown(back, 1),
            ", ".join(row.problems or row.reasons),
        )
    return found


def leak_table(leak: LeakCheck) -> Table:
    """A table of what grew during a leak check."""
    titles = ("process", "quantity", "first", "last", "grew", "allowed", "")
    found = plain_table(titles, ("process", "quantity", ""), f"{leak.turns} {leak.what}")
    for row in leak.rows:
        digits = 1 if row.unit == "MB" else 0
        found.add_row(
            row.process,
            f"{row.quantity} {row.unit}".strip(),
            shown(row.first, digits),
            shown(row.last, digits),
            shown(row.grew, 2),
            shown(row.allowed, digits),
            "" if row.flat else "[red]GREW",
        )
    return found


def list_table(drills: list[Drill]) -> Table:
    """A table of all faults."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("fault", "what happens", "when", "the robot", "bound"):
        found.add_column(title)
    for drill in drills:
        found.add_row(drill.name, drill.what, drill.moment.value, drill.reaction.value, drill.bound.words)
    return found

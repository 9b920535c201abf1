# SPDX-License-Identifier: Apache-2.0
"""What a replay shows the user: a progress bar on a terminal or plain lines, and a table at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from specnav.bags.records import DecisionRecord, ReplayResults
from specnav.report.page import shown
from specnav.terminal import RunView, plain_table, progress_bar

Advance = Callable[[DecisionRecord], None]
LINE_EVERY = 50
COLUMNS = (
    "method",
    "frames",
    "agree %",
    "unparsed",
    "p50 ms",
    "p95",
    "p99",
    "stop P/R %",
    "B up",
    "1/s",
    "same",
)


class ReplayView(RunView):
    """The output of one run."""

    @contextmanager
    def deciding(self, count: int) -> Iterator[Advance]:
        """Show the progress of `count` decisions; yields a function to call after each."""
        if not self.console.is_terminal:
            done = 0

            def line(record: DecisionRecord) -> None:
                nonlocal done
                done += 1
                if done % LINE_EVERY == 0 or done == count:
                    self.say(f"{done} of {count} decisions")

            yield line
            return
        with progress_bar(self.console, "decisions") as bar:
            task = bar.add_task("replaying", total=count)
            yield lambda record: bar.update(
                task, advance=1, description=f"frame {record.frame}, {record.method}"
            )

    def finished(self, results: ReplayResults, report: Path) -> None:
        """Print the results, and where the report is."""
        Console().print(table(results))
        for pair in results.comparison.pairs if results.comparison else []:
            change = (
                "" if pair.p50_change is None else f", decisions take {100 * pair.p50_change:+.0f} % (p50)"
            )
            self.say(
                f"{pair.method} and {pair.earlier_method} of the earlier run: "
                f"{pair.same_action} of {pair.frames} actions agree{change}"
            )
        self.say(f"report: {report}")


def percent(value: float | None) -> str:
    """Format a fraction as a percentage."""
    return "–" if value is None else f"{100 * value:.3g}"


def table(results: ReplayResults) -> Table:
    """Build the table of results for the terminal."""
    found = plain_table(COLUMNS, words=("method",))
    for row in results.rows:
        found.add_row(
            row.method,
            str(row.decisions),
            percent(row.agreement),
            str(row.parse_failures),
            shown(row.decision_ms_p50, 1),
            shown(row.decision_ms_p95, 1),
            shown(row.decision_ms_p99, 1),
            f"{percent(row.stop_precision)}/{percent(row.stop_recall)}",
            f"{(row.uplink_bytes + row.prompt_bytes) / max(row.decisions, 1):.0f}",
            shown(row.frames_per_s, 1),
            {True: "yes", False: "NO", None: "–"}[row.identical],
        )
    return found

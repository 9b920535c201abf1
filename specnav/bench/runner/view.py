# SPDX-License-Identifier: Apache-2.0
"""The output of a bench run: a progress bar on a terminal, plain lines elsewhere, and the table at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from specnav.bench.data.questions import Question
from specnav.bench.records.bench import BenchResults, BenchRow
from specnav.bench.runner.loop import Advance
from specnav.report.page import shown
from specnav.terminal import RunView, plain_table, progress_bar, say


class BenchView(RunView):
    """The output of one run."""

    @contextmanager
    def answering(self, answers: int, questions: int) -> Iterator[Advance]:
        """Show progress: a bar over all answers on a terminal, else a line per question."""
        if not self.console.is_terminal:
            seen: set[tuple[str, str]] = set()

            def line(question: Question, who: str) -> None:
                key = (question.source, question.question_id)
                if "warming" not in who and key not in seen:
                    seen.add(key)
                    self.say(f"question {len(seen)} of {questions}: {question.source} {question.question_id}")

            yield line
            return
        with progress_bar(self.console, "answers") as bar:
            task = bar.add_task("starting", total=answers)
            done = -1

            def advance(question: Question, who: str) -> None:
                nonlocal done
                if "warming" not in who:
                    done += 1
                bar.update(
                    task, completed=max(done, 0), description=f"{question.source} {question.question_id}, {who}"
                )

            yield advance

    def finished(self, results: BenchResults, report: Path) -> None:
        """Print the table of results and the path of the report."""
        console = Console()
        console.print(table(results.rows))
        if results.acceptance is not None:
            say(console, results.acceptance.line)
        self.say(f"report: {report}")


def as_ar(row: BenchRow) -> str:
    """Whether the ids equal those of `ar`: yes, NO, –, or "≈ 3" for equal except at 3 near-ties."""
    if row.near_ties and not row.errors:
        return f"≈ {row.near_ties}"
    return {True: "yes", False: "NO", None: "–"}[row.identical_to_ar]


def table(rows: Sequence[BenchRow]) -> Table:
    """The rows as a table for the terminal."""
    titles = ("method", "tok/s", "× ar", "τ", "accepted", "TTFT ms", "B up", "B down", "× floor", "as ar")
    found = plain_table(titles, {"method"})
    found.columns[0].overflow = "fold"
    for row in rows:
        found.add_row(
            f"{row.method} (lossy)" if row.lossy else row.method,
            shown(row.tokens_per_s, 1),
            shown(row.speedup_vs_ar, 2),
            shown(row.tau, 2),
            "–" if row.acceptance is None else f"{100 * row.acceptance:.0f} %",
            shown(row.ttft_ms, 1),
            shown(row.uplink_bytes_per_round, 0),
            shown(row.downlink_bytes_per_round, 0),
            shown(row.overhead_over_floor, 2),
            as_ar(row),
        )
    return found

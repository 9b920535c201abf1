"""What the user sees of studies while they run: one bar over all answers of all settings, with the time left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from specnav.bench.core.loop import Advance
from specnav.bench.core.records import BenchResults
from specnav.bench.questions import Question
from specnav.bench.studies.estimate import in_words
from specnav.bench.study_jobs import Job
from specnav.bench.view import BenchView
from specnav.terminal import say

_SPEED_OVER_S = 600.0
"""The time left is worked out from how fast it went for so long."""


class StudyView(BenchView):
    """The view of every run of some studies. Progress is counted in estimated seconds; a bar only on a terminal."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        """jobs: those still to be run."""
        super().__init__(console)
        self._jobs = list(jobs)
        self._job: Job | None = None
        self._before_s = 0.0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=_SPEED_OVER_S,
        )
        self._task = self._bar.add_task("starting", total=sum(job.estimate_s for job in self._jobs))

    def __enter__(self) -> StudyView:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, job: Job) -> None:
        """This run is next."""
        if self._job is not None:
            self._before_s += self._job.estimate_s
        self._job = job
        number = self._jobs.index(job) + 1
        self._show(0.0, "starting")
        if not self.console.is_terminal:
            left = sum(one.estimate_s for one in self._jobs[number - 1 :])
            words = f"{self._where(job)} ({number} of {len(self._jobs)}, about {in_words(left)} left)"
            say(self.console, words)

    def say(self, words: str) -> None:
        """What a run says of its start is left out."""

    def working(self, words: str) -> None:
        """Shown beside the bar."""
        self._show(0.0, words)

    @contextmanager
    def _advancing(self, job: Job) -> Iterator[Advance]:
        done_s, last = job.start_s, ""

        def advance(question: Question, who: str) -> None:
            nonlocal done_s, last
            if "warming" not in who:
                done_s += job.costs.get(last, 0.0)
                last = who
            self._show(done_s if last else 0.0, who)

        yield advance
        self._show(job.estimate_s, "done")

    def answering(self, answers: int, questions: int) -> AbstractContextManager[Advance]:
        """So many answers of the run that began last follow."""
        assert self._job is not None
        return self._advancing(self._job)

    def finished(self, results: BenchResults, report: Path) -> None:
        """A run's own table is left to its report."""

    def _show(self, done_s: float, who: str) -> None:
        assert self._job is not None
        self._bar.update(
            self._task, completed=self._before_s + done_s, description=f"{self._where(self._job)}, {who}"
        )

    @staticmethod
    def _where(job: Job) -> str:
        return f"study {job.study.name}, {job.setting.label}"

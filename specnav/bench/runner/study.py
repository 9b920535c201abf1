# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study`: each setting of a study is an ordinary bench run in its own folder; one page shows them all.

However a study ends, its measurements are kept and the page shows them; `--resume` makes the missing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table as RichTable

from specnav.bench.data.points import load_point
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import BenchResults, load_bench
from specnav.bench.records.study import SettingRecord, StudyResults, gather, load_studies, save_study
from specnav.bench.report.studies import write_studies
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.jobs import POINT, StudyJob, check_flags, in_words, make_jobs
from specnav.bench.runner.loop import Advance
from specnav.bench.runner.points import is_finished
from specnav.bench.runner.run import changed_settings, methods_of, run_bench
from specnav.bench.runner.view import BenchView
from specnav.bench.settings import BenchConfig
from specnav.bench.studies import study_named, study_names
from specnav.bench.studies.plan import Study, Table
from specnav.errors import UsageError
from specnav.results.demo import RESULTS_FILE, SCHEMA
from specnav.run_folder import new_run_folder
from specnav.terminal import plain_table, say

TIME_SCALE = 0.25


def run_studies(
    flags: Mapping[str, Any],
    given: str,
    time_scale: float = TIME_SCALE,
    run: Callable[[BenchConfig, StudyTerminalView], int] = run_bench,
) -> int:
    """Run the named studies; returns the exit code. Raises UsageError and the rooms' errors.

    Args:
        flags: of `specnav bench`, None where not given.
        given: names of studies.
        time_scale: factor on every time of the operating point.
        run: makes one setting's bench run.
    """
    studies = [study_named(name) for name in study_names(given)]
    check_flags(flags, studies)
    asked = {name: value for name, value in flags.items() if name not in ("out", "resume")}
    jobs = make_jobs(asked, studies, time_scale)  # a wrong flag ends the command before a folder is made
    folder = study_folder(flags.get("out"), bool(flags.get("resume")))
    jobs = [job.within(folder) for job in jobs]
    for job in jobs:
        _check_same(job)
    console = Console(stderr=True)
    missing = [job for job in jobs if not is_done(job)]
    _announce(console, jobs, missing, time_scale)

    def keep(study: Study, error: str) -> None:
        mine = [job for job in jobs if job.study is study]
        point = flags.get("point") or study.point or POINT
        keep_study(folder / study.name, _asked_of(study, mine, point, time_scale, error))

    view = StudyTerminalView(console, missing)
    with noting_the_end() as ending, view.bar:
        for job in missing:
            view.begin(job)
            ending.code = run(job.config, view)
            keep(job.study, "")
            if ending.code:
                break
    for study in studies:
        keep(study, ending.error)
    show(folder, console)
    return ending.exit_code()


def show(folder: Path, console: Console) -> None:
    """Print the results of the studies in a folder and draw their page; do nothing without measurements."""
    if kept := load_studies(folder):
        for _, results in kept:
            for one in study_named(results.name).read(results).tables[:1]:
                Console().print(on_terminal(one))
        say(console, f"report: {write_studies(folder)}")


def on_terminal(one: Table) -> RichTable:
    """A study's table for a terminal."""
    found = plain_table([words.replace("\n", " ") for words in one.head], {one.head[0].replace("\n", " ")}, one.title)
    for row in one.rows:
        found.add_row(*row)
    return found


def redraw(folder: Path) -> int:
    """Draw the studies in a folder again, from their runs if these still exist. Raises EvaluationError."""
    for name, results in load_studies(folder):
        keep_study(folder / name, results)
    say(Console(stderr=True), f"report: {write_studies(folder)}")
    return 0


def is_done(job: StudyJob) -> bool:
    """Whether a job's run is complete."""
    return job.config.out is not None and is_finished(job.config, job.config.out)


def _check_same(job: StudyJob) -> None:
    """Raise UsageError if the job's run was begun with other settings, for example another time scale."""
    place = job.config.out
    if place is None or not (place / RESULTS_FILE).is_file():
        return
    if differing := changed_settings(job.config, methods_of(job.config)[0], load_bench(place)):
        raise UsageError(f"cannot resume {place}: {differing}; use the same settings or a new folder")


def study_folder(out: Path | None, resumed: bool) -> Path:
    """A new folder for studies, or the one to resume. Raises UsageError."""
    if not resumed:
        return new_run_folder(out, "study", datetime.now())
    if out is None:
        raise UsageError("--resume continues an earlier study; name its folder with --out")
    folder = Path(out).resolve()
    if not folder.is_dir():
        raise UsageError(f"{folder} holds no study to resume; leave --resume out to start one")
    return folder


def _announce(console: Console, jobs: Sequence[StudyJob], missing: Sequence[StudyJob], time_scale: float) -> None:
    """Print how long the studies will take."""
    for study in dict.fromkeys(job.study for job in jobs):
        mine = [job for job in missing if job.study is study]
        asked = sum(job.study is study for job in jobs)
        done = f", {asked - len(mine)} done already" * (len(mine) < asked)
        say(
            console,
            f"study {study.name}: {asked} setting{'s' * (asked > 1)}{done}, about "
            f"{in_words(sum(job.estimate_s for job in mine))}",
        )
    if missing:
        say(
            console,
            f"about {in_words(sum(job.estimate_s for job in missing))} in all, every time of the operating point times "
            f"{time_scale:g}; --limit, --max-new-tokens and --time-scale make it shorter or longer",
        )


def _asked_of(study: Study, jobs: Sequence[StudyJob], point: str, time_scale: float, error: str) -> StudyResults:
    """The record of a study before any measurement."""
    complete = all(is_done(job) for job in jobs)
    settings = [job.setting for job in jobs]
    return StudyResults(
        schema=SCHEMA,
        name=study.name,
        settings=[SettingRecord(folder=one.folder, label=one.label, x=one.x) for one in settings],
        time_scale=time_scale,
        point=load_point(point)[1],
        asked=len(jobs),
        interrupted=not complete and not error,
        error="" if complete else error,
    )


def keep_study(folder: Path, results: StudyResults) -> None:
    """Write `study.json` from the measurements in its folder, if there are any. Raises EvaluationError."""
    found = gather(folder, results)
    there = {"batch": found.curve is not None, "computed": True}
    if there.get(study_named(results.name).kind, found.done):
        save_study(folder, found)


_SPEED_OVER_S = 600.0
"""Period over which speed is averaged to estimate the time left."""


class StudyTerminalView(BenchView):
    """The view of all runs of some studies. Progress is measured in estimated seconds; the bar needs a terminal."""

    def __init__(self, console: Console, jobs: Sequence[StudyJob]) -> None:
        """jobs: those still to be run."""
        super().__init__(console)
        self._jobs = list(jobs)
        self._job: StudyJob | None = None
        self._before_s = 0.0
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(
            *columns,
            console=console,
            transient=True,
            disable=not console.is_terminal,
            speed_estimate_period=_SPEED_OVER_S,
        )
        self._task = self.bar.add_task("starting", total=sum(job.estimate_s for job in self._jobs))

    def begin(self, job: StudyJob) -> None:
        """Start showing the next run."""
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
        """Ignore a run's messages about its start."""

    def working(self, words: str) -> None:
        """Show the text beside the bar."""
        self._show(0.0, words)

    @contextmanager
    def answering(self, answers: int, questions: int) -> Iterator[Advance]:
        """Show the progress of the current run's answers."""
        assert self._job is not None
        job, done_s, last = self._job, self._job.start_s, ""

        def advance(question: Question, who: str) -> None:
            nonlocal done_s, last
            if "warming" not in who:
                done_s += job.costs.get(last, 0.0)
                last = who
            self._show(done_s if last else 0.0, who)

        yield advance
        self._show(job.estimate_s, "done")

    def finished(self, results: BenchResults, report: Path) -> None:
        """Print nothing; a run's table is in its report."""

    def _show(self, done_s: float, who: str) -> None:
        assert self._job is not None
        self.bar.update(
            self._task, completed=self._before_s + done_s, description=f"{self._where(self._job)}, {who}"
        )

    @staticmethod
    def _where(job: StudyJob) -> str:
        return f"study {job.study.name}, {job.setting.label}"

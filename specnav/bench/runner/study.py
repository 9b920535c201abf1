# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study`: each setting of a study is an ordinary bench run in its own folder; one page shows them all.

However a study ends, its measurements are kept and the page shows them; `--resume` makes the missing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from specnav.bench.data.points import load_point
from specnav.bench.records.bench import BenchResults, load_bench
from specnav.bench.records.study import SettingRecord, StudyResults, gather, load_studies, save_study
from specnav.bench.report.studies import write_studies
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.jobs import POINT, StudyJob, check_flags, in_words, make_jobs
from specnav.bench.runner.points import is_finished
from specnav.bench.runner.run import changed_settings, methods_of, run_bench, series_folder
from specnav.bench.runner.view import BenchView
from specnav.bench.settings import BenchConfig
from specnav.bench.studies import study_named, study_names
from specnav.bench.studies.plan import Study, Table
from specnav.errors import UsageError
from specnav.results.demo import RESULTS_FILE, SCHEMA
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
    folder = study_folder(flags)
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

    view = StudyTerminalView(console)
    with noting_the_end() as ending:
        for number, job in enumerate(missing):
            left = in_words(sum(one.estimate_s for one in missing[number:]))
            where = f"study {job.study.name}, {job.setting.label}"
            say(console, f"{where} ({number + 1} of {len(missing)}, about {left} left)")
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


def study_folder(flags: Mapping[str, Any]) -> Path:
    """A new folder for studies, or the one to resume. Raises UsageError."""
    return series_folder(flags.get("out"), bool(flags.get("resume")), "study")


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


class StudyTerminalView(BenchView):
    """The view of a run of a study: only the progress of its answers, because its table is in its report."""

    def say(self, words: str) -> None:
        """Ignore a run's messages."""

    def finished(self, results: BenchResults, report: Path) -> None:
        """Print nothing."""

# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study`: each setting of a study is an ordinary bench run in its own folder; one page shows them all.

Flags are checked and the duration is estimated before the first run. However a study ends, its measurements are kept
and the page shows them; `--resume` makes the missing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from cloud_verifier.config import NO_EXITS
from cloud_verifier.loading import exits_folder_of
from specdec.methods import get_method
from specdec.verifying.exits.files import ABOUT, ExitsMetadata
from specnav.bench.data import latency
from specnav.bench.data.points import load_point
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import BenchResults
from specnav.bench.records.study import SettingRecord, StudyResults, gather, load_studies
from specnav.bench.report.studies import write_studies
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.loop import WARM_UP_TOKENS
from specnav.bench.runner.points import is_finished, point_names
from specnav.bench.runner.run import changed_settings, methods_of, run_bench, series_folder
from specnav.bench.runner.view import BenchView
from specnav.bench.settings import BenchConfig, flag_of, make_config, with_times
from specnav.bench.studies import study_named, study_names
from specnav.bench.studies.plan import Study, StudyRequest, StudySetting, Table
from specnav.errors import UsageError
from specnav.results.demo import RESULTS_FILE, SCHEMA
from specnav.results.files import read_json
from specnav.signals import signals_wait
from specnav.terminal import plain_table, say

TIME_SCALE = 0.25


def run_studies(
    flags: Mapping[str, Any],
    given: str,
    time_scale: float = TIME_SCALE,
    run: Callable[[BenchConfig, StudyTerminalView], int] = run_bench,
) -> int:
    """Run the named studies; returns the exit code. Raises UsageError and other packages' errors.

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
    folder = series_folder(flags, "study")
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

    def keep_all() -> None:
        for study in studies:
            keep(study, ending.error)

    show(folder, console, keep_all)
    return ending.exit_code()


def show(folder: Path, console: Console, keep: Callable[[], None] = lambda: None) -> None:
    """Keep studies, draw the page of their folder, print their results; without measurements there is no page.

    A signal waits until the page is drawn.
    """
    with signals_wait():
        keep()
        kept = load_studies(folder)
        report = write_studies(folder) if kept else None
    for _, results in kept:
        for one in study_named(results.name).read(results).tables[:1]:
            Console().print(on_terminal(one))
    if report is not None:
        say(console, f"report: {report}")


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
    if differing := changed_settings(job.config, methods_of(job.config)[0], BenchResults.load(place)):
        raise UsageError(f"cannot resume {place}: {differing}; use the same settings or a new folder")


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
        found.save(folder)


class StudyTerminalView(BenchView):
    """The view of a run of a study: only the progress of its answers, because its table is in its report."""

    def say(self, words: str) -> None:
        """Ignore a run's messages."""

    def finished(self, results: BenchResults, report: Path) -> None:
        """Print nothing."""


POINT = "go2-wifi6"


@dataclass(frozen=True)
class StudyJob:
    """One setting as a bench run. estimate_s: estimated seconds of the run."""

    study: Study
    setting: StudySetting
    config: BenchConfig
    estimate_s: float

    def within(self, folder: Path) -> StudyJob:
        """The job with its output in a folder of studies; it resumes there if it was begun."""
        place = folder / self.study.name / self.setting.folder
        return replace(self, config=replace(self.config, out=place, resume=place.is_dir()))


def check_flags(flags: Mapping[str, Any], studies: Sequence[Study]) -> None:
    """Raise UsageError for flags that a study does not accept. flags: None where not given."""
    if len(point_names(flags.get("point"))) > 1 or flags.get("point") == "all":
        raise UsageError("a study is about one operating point; give one with --point")
    for name in ("length", "payload", "resample"):
        if flags.get(name) is not None:
            raise UsageError(
                f"--{name} is not varied by a study: name the axis in --methods, like sd+{name}:VALUE"
            )
    for study in studies:
        if flags.get("methods") is not None and not study.takes_methods:
            raise UsageError(f"study {study.name} has its own methods; leave --methods out")
        for name in study.sets:
            if flags.get(name) is not None:
                raise UsageError(f"study {study.name} varies this itself; leave {flag_of(name)} out")


def make_jobs(flags: Mapping[str, Any], studies: Sequence[Study], time_scale: float) -> list[StudyJob]:
    """The runs of some studies, in order. Raises UsageError and other packages' errors for invalid flags."""
    return [job for study in studies for job in _jobs_of(flags, study, time_scale)]


def _jobs_of(flags: Mapping[str, Any], study: Study, time_scale: float) -> list[StudyJob]:
    given = {name: value for name, value in flags.items() if value is not None}
    given = {"point": study.point or POINT, "limit": study.limit, "max_new_tokens": study.max_new_tokens, **given}
    if "acceptance" in study.sets:
        given.pop("at_paper_acceptance", None)
    named = tuple(given.pop("methods", ()))
    layers = exits_of(make_config(given))
    if study.needs_exits and not layers:
        raise UsageError(
            f"study {study.name} needs a target with early exits: specnav train exits makes them, --exits names them"
        )
    settings = study.settings(StudyRequest(named, layers))
    return [_job(given, study, one, time_scale) for one in settings]


def _job(given: Mapping[str, Any], study: Study, setting: StudySetting, time_scale: float) -> StudyJob:
    config = make_config({**given, **setting.changes, "methods": setting.methods})
    config = scaled(config, time_scale)
    methods, _ = methods_of(config)
    turns = sum(len(one.turns) for one in load_questions(config.questions, config.limit))
    short = min(config.max_new_tokens, WARM_UP_TOKENS)
    answers_s = sum(
        answer_s(name, config, short) + turns * answer_s(name, config, config.max_new_tokens) for name in methods
    )
    return StudyJob(study, setting, config, START_S + answers_s)


def scaled(config: BenchConfig, scale: float) -> BenchConfig:
    """The config with every time multiplied by `scale`, and without the point, which belongs to the study."""
    return replace(with_times(config, scale), point="")


def exits_of(config: BenchConfig) -> tuple[int, ...]:
    """Layers of the verifier's early exits; empty if it has none. Raises EvaluationError."""
    if config.exits == NO_EXITS:
        return ()
    folder = Path(config.exits) if config.exits else exits_folder_of(Path(config.target_model))
    return () if folder is None else tuple(read_json(folder / ABOUT, ExitsMetadata).layers)


ALPHA = 0.5
"""Probability that a draft token of the shipped text pair is accepted."""
START_S = 8.0
"""Seconds to load a small pair and start the processes."""
LEAST_DRAFT_MS, LEAST_VERIFY_MS, OVERHEAD_MS = 2.0, 4.0, 2.0
"""Times of the shipped pair without pacing, and the overhead of a round beyond its parts."""


def answer_s(name: str, config: BenchConfig, tokens: int) -> float:
    """Estimated seconds of an answer of `tokens` tokens; assumes that pre-drafting gains nothing."""
    method, gamma, one_way_ms = get_method(name), config.gamma, config.rtt_ms / 2
    verify = max(config.verify_ms, LEAST_VERIFY_MS) + OVERHEAD_MS
    tau = latency.expected_tokens(ALPHA, gamma)
    if method.split:
        rest = latency.split(tokens, verify / 4, verify * 3 / 4, one_way_ms)
    elif method.drafts:
        draft = max(config.draft_ms, LEAST_DRAFT_MS)
        rest = latency.edge_sd(tokens, tau, gamma, draft, verify, one_way_ms)
    elif method.cloud_drafts:
        draft = max(config.draft_ms_in_cloud, LEAST_DRAFT_MS)
        rest = latency.cloud_sd(tokens, tau, gamma, draft, verify, one_way_ms)
    else:
        rest = latency.cloud_ar(tokens, verify, one_way_ms)
    return (config.rtt_ms + verify + rest) / 1e3


def in_words(seconds: float) -> str:
    """A duration as text: seconds below 90 s, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

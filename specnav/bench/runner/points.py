# SPDX-License-Identifier: Apache-2.0
"""`specnav bench points A,B` or `all`: one run per operating point, all in one folder, and an index page.

`--resume` skips finished points. However the command ends, the page shows the existing runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from specdec.settings import parts
from specnav.bench.data.names import unlike_methods
from specnav.bench.data.points import POINTS, load_point
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import BenchResults, changed_questions, load_answers
from specnav.bench.report.bench import write_bench_report
from specnav.bench.report.points import load_points, write_points, write_tables
from specnav.bench.runner.run import changed_settings, methods_of, run_bench, series_folder
from specnav.bench.settings import BenchConfig, make_config
from specnav.errors import UsageError
from specnav.paths import ROOT
from specnav.results.demo import RESULTS_FILE
from specnav.signals import signals_wait
from specnav.terminal import say

ALL = "all"
FIGURES = ROOT / "docs" / "figures.md"
_SHORT = {"limit": 2, "max_new_tokens": 48}
"""Default questions and tokens at the papers' acceptance, so that all points take about an hour."""


def run_point(flags: Mapping[str, Any]) -> int:
    """One run, with or without an operating point; returns the exit code.

    Raises UsageError and other packages' errors.
    """
    point = flags.get("point")
    if point is not None and (point == ALL or "," in point):
        raise UsageError(f"--point must be one operating point, got {point!r}: specnav bench points runs several")
    return run_bench(_config_of(_short(flags)))


def _short(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """The flags with few questions and tokens at the papers' acceptance, unless other numbers are given."""
    if not flags.get("at_paper_acceptance"):
        return flags
    return {**flags, **{name: value for name, value in _SHORT.items() if flags.get(name) is None}}


def run_points(flags: Mapping[str, Any], write: bool = False) -> int:
    """One run per named point; returns the exit code. Raises UsageError and other packages' errors.

    write: also write the tables into the checkout's files of points and its page of figures.
    """
    if write and (flags.get("point") != ALL or not flags.get("at_paper_acceptance")):
        raise UsageError("--write needs the results of all points: give all --at-paper-acceptance with it")
    names = point_names(flags.get("point"))
    if not names:
        raise UsageError("an operating point must be named: give NAME, several separated by commas, or all")
    flags = _short(flags)
    if len(names) == 1:
        return run_point({**flags, "point": names[0]})
    for name in names:  # a wrong flag ends the command before a folder is made
        methods_of(_config_of({**flags, "point": name, "out": None, "resume": None}))
    folder = series_folder(flags, "points")
    console = Console(stderr=True)

    def warn(line: str) -> None:
        say(console, f"warning: {line}")

    try:
        code = _run_each(names, folder, flags)
    finally:
        if any(folder.glob(f"*/{RESULTS_FILE}")):
            with signals_wait():
                page = write_points(folder, warn)
            say(console, f"all points: {page}")
    if write and not code:
        for place in write_tables(load_points(folder, warn), POINTS, FIGURES):
            say(console, f"written: {place.relative_to(ROOT)}")
    return code


def _config_of(flags: Mapping[str, Any]) -> BenchConfig:
    """One run's settings. At the papers' acceptance the default is every method that differs at its temperature."""
    config = make_config(flags)
    if flags.get("at_paper_acceptance") and not config.methods:
        return replace(config, methods=unlike_methods(config.temperature))
    return config


def _run_each(names: list[str], folder: Path, flags: Mapping[str, Any]) -> int:
    console = Console(stderr=True)
    for number, name in enumerate(names, start=1):
        place = folder / _own_name(name)
        config = _config_of({**flags, "point": name, "out": place, "resume": place.is_dir()})
        if is_finished(config, place):
            say(console, f"point {number} of {len(names)}: {name} is done")
            _say_anew(place, name)
            continue
        say(console, f"point {number} of {len(names)}: {name}")
        code = run_bench(config)
        if code:
            return code
    return 0


def _say_anew(place: Path, name: str) -> None:
    """Update the report of a finished run from its point's file, which contains no measurement of the run."""
    before, point = BenchResults.load(place), load_point(name)[1]
    if before.point != point:
        msgspec.structs.replace(before, point=point).save(place)
        write_bench_report(place)


def point_names(given: str | None) -> list[str]:
    """The points named by `--point`; for "all", every file in config/points. Raises UsageError."""
    if given == ALL:
        return sorted(path.stem for path in POINTS.glob("*.yaml"))
    names = list(parts(given or ""))
    if len({_own_name(name) for name in names}) < len(names):
        raise UsageError(f"{given} names a point twice: give each once")
    return names


def _own_name(point: str) -> str:
    """The name of a point given by name or file; a name may contain dots, like dssd-opt6.7b."""
    return Path(point).name.removesuffix(".yaml")


def is_finished(config: BenchConfig, folder: Path) -> bool:
    """Whether a run in `folder` has the same settings and has answered everything that the config asks."""
    if not (folder / RESULTS_FILE).is_file():
        return False
    methods, _ = methods_of(config)
    before = BenchResults.load(folder)
    if before.error or before.interrupted or changed_settings(config, methods, before):
        return False
    questions = load_questions(config.questions, config.limit)
    if changed_questions(load_answers(folder), questions):
        return False
    asked = len(questions)
    rows = {row.method: row.questions for row in before.rows}
    return len(before.skipped) + before.asked == asked and all(
        rows.get(name) == before.asked for name in methods
    )

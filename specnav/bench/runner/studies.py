# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study`: dispatches to the code that makes the named study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from specdec.settings import settings_of
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.run import series_folder
from specnav.bench.runner.study import TIME_SCALE, keep_study, redraw, run_studies, show
from specnav.bench.settings import StudyWords
from specnav.bench.studies import study_named, study_names
from specnav.bench.studies.plan import Study
from specnav.errors import UsageError
from specnav.results.demo import SCHEMA, describe_machine
from specnav.run_folder import started_at
from specnav.settings import make_settings, shown_settings


def run_named(flags: Mapping[str, Any], words: StudyWords) -> int:
    """Run the named studies; returns the exit code. Raises UsageError and other packages' errors."""
    if words.redraw is not None:
        if words.names is not None:
            raise UsageError("--redraw runs nothing: leave the study out")
        return redraw(words.redraw)
    if words.names is None:
        raise UsageError("a study must be named: specnav bench study --help lists them")
    names = study_names(words.names)
    flags = dict(flags)
    time_scale = flags.pop("time_scale", None)
    study = study_named(names[0])
    _check(study, words, time_scale is not None)
    if study.kind == "clients":
        from specnav.bench.runner.clients_study import run_clients_study

        return run_clients_study(flags, time_scale, words.clients, words.seconds, words.batch_curve)
    if study.kind == "batch":
        from specnav.bench.runner.batch_study import run_batch_study

        return run_batch_study(flags, words.clients, words.seconds)
    if study.kind == "computed":
        return run_computed(study, flags, words.own)
    if study.kind == "drafts":
        raise UsageError("drafts are compared by specnav bench drafts")
    return run_studies(flags, words.names, time_scale or TIME_SCALE)


def _check(study: Study, words: StudyWords, scaled: bool) -> None:
    """Raise UsageError for a flag that the study does not use."""
    for flag, given, kinds in (
        ("--clients", words.clients, ("clients", "batch")),
        ("--seconds", words.seconds, ("clients", "batch")),
        ("--batch-curve", words.batch_curve, ("clients",)),
        ("--with", words.own or None, ("computed",)),
        ("--time-scale", scaled or None, ("runs", "clients")),
    ):
        if given is not None and study.kind not in kinds:
            raise UsageError(f"study {study.name} does not use {flag}: leave it out")


def run_computed(study: Study, flags: Mapping[str, Any], own: Sequence[str]) -> int:
    """Compute, draw and report a study that starts no process. Raises UsageError, EvaluationError."""
    assert study.own is not None
    known = settings_of(study.own)
    if others := sorted(name for name in flags if name not in ("out", "resume")):
        raise UsageError(
            f"study {study.name} takes its numbers as --with {', '.join(known)}: leave {', '.join(others)} out"
        )
    asked: Any = make_settings(study.own, dict(_pair(word, known) for word in own), f"study {study.name}")
    results = StudyResults(
        schema=SCHEMA,
        name=study.name,
        settings=[],
        config=shown_settings(asked, leave_out=(), paths=()),
        machine=describe_machine(),
        started_at=started_at(),
        asked=1,
    )
    if study.name == "payloads":
        from specnav.bench.runner.payloads import weigh_all

        results.payloads.extend(weigh_all(asked))
    folder = series_folder(flags, "study")
    show(folder, Console(stderr=True), lambda: keep_study(folder / study.name, results))
    return 0


def _pair(word: str, known: Mapping[str, Any]) -> tuple[str, Any]:
    """Parse NAME=VALUE of `--with`; the value gets its setting's type."""
    name, _, value = word.partition("=")
    return name, known[name].from_words(value) if name in known else value

# SPDX-License-Identifier: Apache-2.0
"""The study of early exits: which ones the verifier should compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import MISS, SPEEDUP, percent, system_of, times
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, Table, table_of
from specnav.report.charts import RowChart, RowSeries
from specnav.report.page import shown

METHOD = "fsd+overlap:hints"
"""Hints only: the edge's own guesses would hide a bad exit."""
SETS = {"every:2": "every second", "all": "all", "auto": "auto"}


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    single = [(str(layer), f"after layer {layer}") for layer in asked.layers]
    return [
        StudySetting(f"exits-{spec.replace(':', '-')}", words, ("ar", METHOD), place, {"exit_layers": spec})
        for place, (spec, words) in enumerate([*single, *SETS.items()])
    ]


def _read(results: StudyResults) -> StudyFindings:
    done = [one for one in results.settings if one.row(METHOD)]
    names = tuple(one.label for one in done)
    system = system_of(results.point)

    missed = tuple(one.value(METHOD, *MISS) for one in done)
    late = tuple(one.late(METHOD) for one in done)
    hits = tuple(_hits_a_hint(one) for one in done)
    speeds = tuple(one.value(METHOD, SPEEDUP) for one in done)
    level, words = (system.miss, "paper, all exits, miss") if system else (None, "")
    ready = (
        RowSeries("verdicts whose next draft was not completely prepared (miss)", missed),
        RowSeries("draft tokens drafted only after the verdict (r)", late, shade=1),
    )
    charts = [
        RowChart("Drafts not ready when the verdict came", "%", names, ready, 0, level, words, dots=True),
        RowChart("Hints that were acted on in time", "hits over hints received, %", names, (RowSeries("", hits),), 1),
        RowChart("Speed-up over cloud AR", "times ar", names, (RowSeries("", speeds),), 2, 1.0, "ar"),
    ]
    return StudyFindings(charts if done else [], [_table(done, results.time_scale)])


def _hits_a_hint(one: SettingRecord) -> float | None:
    """Percent of received hints whose draft was then sent; with hints only, every hit comes from a hint."""
    missed, hints = one.value(METHOD, *MISS), one.value(METHOD, "hints_per_round")
    return (100 - missed) / hints if missed is not None and hints else None


def _table(done: Sequence[SettingRecord], scale: float) -> Table:
    columns: list[tuple[str, Callable[[SettingRecord], str]]] = [
        ("Exits", lambda one: one.label),
        ("Miss", lambda one: percent(one.value(METHOD, *MISS))),
        ("r, tokens\ndrafted late", lambda one: percent(one.late(METHOD))),
        ("Hints\nper round", lambda one: shown(one.value(METHOD, "hints_per_round"), 1)),
        ("Hits\nper hint", lambda one: percent(_hits_a_hint(one))),
        ("Over ar", lambda one: times(one.value(METHOD, SPEEDUP))),
        ("Forward\nms", lambda one: shown(formula.verify / scale if (formula := one.formula(METHOD)) else None, 1)),
    ]
    return table_of("By exits", done, columns)


STUDY = Study(
    name="exits",
    title="Which early exits",
    question="Which of the target's layers are worth an exit?",
    sets=frozenset({"exit_layers"}),
    settings=_settings,
    read=_read,
    needs_exits=True,
    limit=2,
)

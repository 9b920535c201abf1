# SPDX-License-Identifier: Apache-2.0
"""The study of drafts: the same questions with several draft models, number types or engines."""

from __future__ import annotations

from collections.abc import Callable

from specnav.bench.records.study import DraftRecord, SettingRecord, StudyResults
from specnav.bench.studies.figures import percent, times
from specnav.bench.studies.plan import Study, StudyFindings, Table, table_of
from specnav.report.charts import ChartLine, LineChart, RowChart, RowSeries
from specnav.report.page import shown

METHODS = ("ar", "sd", "fsd", "auto")
RTTS = (0.0, 40.0)
ROWS = (1, 2, 4, 8, 16)
TAU_OF = "sd"
"""The method whose accepted tokens measure the quality of a draft: plain chains."""


def _read(results: StudyResults) -> StudyFindings:
    drafts = results.drafts
    if not drafts:
        return StudyFindings()
    lines = tuple(ChartLine(one.label, tuple(one.row_ms), one.label) for one in drafts)
    charts: list[LineChart | RowChart] = [LineChart("One draft forward by rows", "rows", "ms", lines, ROWS)]
    taus = tuple(_value(results, one, "tau") for one in drafts)
    if any(value is not None for value in taus):
        series = (RowSeries("τ", taus),)
        names = tuple(one.label for one in drafts)
        charts.append(RowChart(f"Tokens a round ({TAU_OF})", "τ", names, series, digits=2))
    return StudyFindings(charts, [_cost_table(results), _speed_table(results)])


def _settings(results: StudyResults, draft: DraftRecord) -> list[SettingRecord]:
    return [one for one in results.settings if one.folder in draft.folders]


def _value(results: StudyResults, draft: DraftRecord, name: str, factor: float = 1.0) -> float | None:
    """A figure of TAU_OF with a draft on the link with the shortest round trip."""
    found = sorted(_settings(results, draft), key=lambda one: one.x)
    return found[0].value(TAU_OF, name, factor) if found else None


def _ms(draft: DraftRecord, rows: int) -> float | None:
    return dict(draft.row_ms).get(rows)


def _cost_table(results: StudyResults) -> Table:
    first = _ms(results.drafts[0], 1)

    def gain(one: DraftRecord) -> float | None:
        alone = _ms(one, 1)
        return None if not alone or first is None else first / alone

    def ms_of(rows: int) -> tuple[str, Callable[[DraftRecord], str]]:
        return f"{rows} row{'s' * (rows > 1)},\nms", lambda one: shown(_ms(one, rows), 3)

    columns: list[tuple[str, Callable[[DraftRecord], str]]] = [
        ("Draft", lambda one: one.label),
        ("Runs on", lambda one: one.backend),
        ("Numbers", lambda one: one.kind),
        ("MB", lambda one: shown(one.size_mb, 1)),
        *map(ms_of, ROWS),
        ("1 row, over\nthe first", lambda one: times(gain(one))),
        (f"τ\n({TAU_OF})", lambda one: shown(_value(results, one, "tau"), 2)),
        ("accepted", lambda one: percent(_value(results, one, "acceptance", 100.0))),
    ]
    one = results.drafts[0]
    said = f"Medians, {one.threads} CPU thread{'s' * (one.threads > 1)} a forward, {one.context} tokens in the cache."
    return table_of("Time of a draft forward, and acceptance", results.drafts, columns, said)


def _speed_table(results: StudyResults) -> Table:
    methods = results.methods()
    rtts = sorted({one.x for one in results.settings if one.rows})
    head = ("Draft", *(f"{name},\nRTT {rtt:g}" for rtt in rtts for name in methods), "as ar")
    rows = []
    for one in results.drafts:
        by_rtt = {setting.x: setting for setting in _settings(results, one)}
        cells = [
            shown(by_rtt[rtt].value(name, "tokens_per_s") if rtt in by_rtt else None, 1)
            for rtt in rtts
            for name in methods
        ]
        verdicts = [
            row.as_ar for setting in by_rtt.values() for row in setting.rows if row.method != "ar"
        ]
        same = "–" if None in verdicts or not verdicts else "yes" if all(verdicts) else "NO"
        rows.append((one.label, *cells, same))
    return Table("Tokens a second", head, tuple(rows))


def _how(results: StudyResults) -> list[tuple[str, str]]:
    verify = results.config.get("verify_ms")
    return [
        ("Draft forwards", "not paced"),
        ("Target forwards", f"paced to {verify} ms" if verify else "not paced"),
    ]


STUDY = Study(
    name="drafts",
    title="Draft models, engines and number types",
    question="How long does a draft token take, how often is it accepted, and how fast are the methods with it?",
    read=_read,
    takes_methods=True,
    kind="drafts",
    how=_how,
)

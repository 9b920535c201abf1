# SPDX-License-Identifier: Apache-2.0
"""The study of queue policies: the order in which the cloud sends hints and the edge pre-drafts for them."""

from __future__ import annotations

from collections.abc import Sequence

from specnav.bench.data.papers import figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import FSD_PAPER, MISS, percent
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, Table
from specnav.report.charts import RowChart, RowSeries

ROWS = (3, 5, 10)
"""The columns of the paper's Table 7."""


def policies() -> dict[str, list[float]]:
    """The paper's miss rates in percent, by policy "edge/cloud"; one value for each of ROWS."""
    return figures()[FSD_PAPER]["queue_ablation_miss"]


def method_of(policy: str, rows: int) -> str:
    """The method of a cell of the table; as in the paper, only hints are pre-drafted."""
    return f"fsd+overlap:hints+queues:{policy}+rows:{rows}"


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    methods = ("ar", *(method_of(one, rows) for rows in ROWS for one in policies()))
    return [StudySetting("policies", "all policies", methods)]


def _read(results: StudyResults) -> StudyFindings:
    run = results.settings[0] if results.settings else SettingRecord(folder="", label="", x=0.0)
    names = tuple(policies())
    series = []
    for place, rows in enumerate(ROWS):
        printed = tuple(float(values[place]) for values in policies().values())
        ours = tuple(_miss(run, one, rows) for one in names)
        series += [
            RowSeries(f"{rows} rows", ours, shade=place),
            RowSeries(f"{rows} rows, paper", printed, paper=True, shade=place),
        ]
    chart = RowChart(
        "Rounds whose next draft was not ready, by policy (edge/cloud)",
        "miss rate, %",
        names,
        tuple(series),
        dots=True,
    )
    return StudyFindings([chart], [_table(run)])


def _miss(run: SettingRecord, policy: str, rows: int) -> float | None:
    return run.value(method_of(policy, rows), *MISS)


def _table(run: SettingRecord) -> Table:
    lines = [
        (
            policy,
            *(
                text
                for place, rows in enumerate(ROWS)
                for text in (percent(_miss(run, policy, rows)), percent(values[place]))
            ),
        )
        for policy, values in policies().items()
    ]
    head = ("Edge/cloud", *(text for rows in ROWS for text in (f"{rows} rows", "paper")))
    return Table("Miss rates beside the paper's Table 7", head, tuple(lines))


STUDY = Study(
    name="queues",
    title="Queue policies",
    question="Does the order matter in which hints are sent and drafts are prepared?",
    settings=_settings,
    read=_read,
    needs_exits=True,
    limit=4,
    max_new_tokens=40,
)

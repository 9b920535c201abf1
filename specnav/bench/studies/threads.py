# SPDX-License-Identifier: Apache-2.0
"""The study of pre-draft rows: for how many verdicts to prepare at once (rows of one batch; threads in the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specnav.bench.data.papers import figure, figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import FSD_PAPER, MISS, SPEEDUP, percent, system_of, systems, times
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, Table, table_of
from specnav.report.charts import ChartLine, LineChart, Mark

ROWS = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30)
KINDS = {"hints and guesses": "fsd", "hints only, as in the paper": "fsd+overlap:hints"}
TABLE_7_THREADS = (3, 5, 10)


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    kinds = [kind for name, kind in KINDS.items() if asked.layers or "hints only" not in name]
    varied = [f"{kind}+rows:{rows}" for kind in kinds for rows in ROWS]
    return [StudySetting("rows", "all rows", ("ar", "sd", *varied))]


def _read(results: StudyResults) -> StudyFindings:
    run = results.settings[0] if results.settings else SettingRecord(folder="", label="", x=0.0)
    plateau = figure(f"{FSD_PAPER}.ablations.threads_plateau")
    mark = Mark(plateau, "paper: little gain beyond this")
    miss_lines = [
        *(ChartLine(name, _by_rows(run, kind, *MISS), kind) for name, kind in KINDS.items()),
        ChartLine("paper, Table 7", tuple(table_7().items()), "paper", paper=True),
        ChartLine(
            "paper, its seven systems",
            tuple((s.threads, s.miss) for s in systems()),
            "paper",
            True,
            joined=False,
        ),
    ]
    speed_lines = [ChartLine(name, _by_rows(run, kind, SPEEDUP), kind) for name, kind in KINDS.items()]
    if (sd := run.row("sd")) and sd.speedup_vs_ar is not None:
        ends = ((ROWS[0], sd.speedup_vs_ar), (ROWS[-1], sd.speedup_vs_ar))
        speed_lines.append(ChartLine("sd", ends, "sd"))
    if system := system_of(results.point):
        speed_lines.append(
            ChartLine("paper, this system", ((system.threads, system.over_ar),), "paper", True, joined=False)
        )
    charts = [
        LineChart(
            "Rounds whose next draft was not ready",
            "verdicts prepared for at once (rows; the paper's threads)",
            "miss rate, %",
            tuple(miss_lines),
            ROWS,
            (mark,),
        ),
        LineChart("Speed-up over cloud AR", "rows", "times ar", tuple(speed_lines), ROWS, (mark,), level=1.0),
    ]
    return StudyFindings(charts, [_table(run)])


def table_7() -> dict[float, float]:
    """The paper's miss rates by number of threads."""
    return dict(zip(TABLE_7_THREADS, figures()[FSD_PAPER]["queue_ablation_miss"]["priority/priority"], strict=True))


def _by_rows(run: SettingRecord, kind: str, name: str, factor: float = 1.0) -> tuple[tuple[float, float], ...]:
    found = [(float(rows), run.value(f"{kind}+rows:{rows}", name, factor)) for rows in ROWS]
    return tuple((rows, y) for rows, y in found if y is not None)


def _table(run: SettingRecord) -> Table:
    paper = table_7()

    def of_kind(head: str, kind: str) -> list[tuple[str, Callable[[int], str]]]:
        return [
            (head, lambda rows: percent(run.value(f"{kind}+rows:{rows}", *MISS))),
            ("r", lambda rows: percent(run.late(f"{kind}+rows:{rows}"))),
            ("over ar", lambda rows: times(run.value(f"{kind}+rows:{rows}", SPEEDUP))),
        ]

    both, hints = KINDS.values()
    columns: list[tuple[str, Callable[[int], str]]] = [
        ("Rows", str),
        *of_kind("Hints and\nguesses: miss", both),
        *of_kind("Hints only:\nmiss", hints),
        ("Paper's miss,\nTable 7", lambda rows: percent(paper.get(rows))),
    ]
    words = "Miss: verdicts whose next draft was not completely prepared. r: draft tokens drafted after the verdict."
    return table_of("By rows", ROWS, columns, words)


STUDY = Study(
    name="threads",
    title="Rows of a pre-draft",
    question="How many possible verdicts are worth preparing for at once?",
    settings=_settings,
    read=_read,
    limit=4,
)

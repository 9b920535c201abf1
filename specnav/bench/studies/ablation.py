# SPDX-License-Identifier: Apache-2.0
"""The value of each part of PicoSpec's pipeline: one part left out at a time, as in its Tables 2 and 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specnav.bench.data.papers import figures
from specnav.bench.records.study import SettingRecord, StudyResults
from specnav.bench.studies.figures import SPEEDUP, times
from specnav.bench.studies.plan import Study, StudyFindings, StudyRequest, StudySetting, table_of
from specnav.report.charts import RowChart, RowSeries
from specnav.report.page import shown

FULL = "picospec"
PARTS = {
    "everything": (FULL, "full"),
    "no parallel drafting: stop and wait": (f"{FULL}+overlap:idle+leave:whole", "no_parallel"),
    "no fast verification": (f"{FULL}+leave:whole", "no_fast_verify"),
    "whole rows up, no separate rejection": (f"{FULL}+payload:rows", "no_split_rejection"),
}
"""Variant in words: (our method, the paper's row)."""
TABLES = {"picospec-qwen32b": "ablation_qwen_gsm8k", "picospec-llama70b": "ablation_llama_gsm8k"}
ROW_BYTES = 4 * 3072
"""Size of a row of the shipped target."""
BANDWIDTH_MBPS = 100.0 * ROW_BYTES / (2 * 151_936)
"""Bandwidth at which our row takes as long as Qwen's, with two bytes per number, at the point's 100 Mb/s."""
SPEEDUPS = {"picospec-qwen32b": "qwen_gsm8k", "picospec-llama70b": "llama_gsm8k"}


def _settings(asked: StudyRequest) -> Sequence[StudySetting]:
    methods = ("ar", "sd", *(method for method, _ in PARTS.values()))
    changes = {"temperature": 1.0, "bandwidth_mbps": BANDWIDTH_MBPS}
    return [StudySetting("parts", "one part left out at a time", methods, 0.0, changes)]


def _printed(results: StudyResults, row: str) -> float | None:
    """The paper's figure for a row, relative to its AR."""
    name = results.point.name if results.point else ""
    if name not in TABLES:
        return None
    paper = figures()["picospec_002"]
    return float(paper[TABLES[name]][row][0]) / float(paper["speedup"][SPEEDUPS[name]]["ar"])


def _read(results: StudyResults) -> StudyFindings:
    run = results.settings[0] if results.settings else SettingRecord(folder="", label="", x=0.0)
    if not run.rows:
        return StudyFindings()
    ours = {words: run.value(method, SPEEDUP) for words, (method, _) in PARTS.items()}
    paper = {words: _printed(results, row) for words, (_, row) in PARTS.items()}
    series = (RowSeries("ours", tuple(ours.values())), RowSeries("paper", tuple(paper.values()), paper=True))
    chart = RowChart("Tokens a second over cloud AR", "times ar", tuple(PARTS), series, 2, 1.0, "ar")
    columns: list[tuple[str, Callable[[str], str]]] = [
        ("Pipeline", str),
        ("Ours,\nover ar", lambda words: times(ours[words])),
        ("of\neverything", lambda words: times(_share(ours, words))),
        ("Paper,\nover ar", lambda words: times(paper[words])),
        ("of\neverything", lambda words: times(_share(paper, words))),
        ("τ", lambda words: shown(run.value(PARTS[words][0], "tau"), 2)),
        ("Bytes up\na round", lambda words: shown(run.value(PARTS[words][0], "uplink_bytes_per_round"))),
        ("Down", lambda words: shown(run.value(PARTS[words][0], "downlink_bytes_per_round"))),
    ]
    caption = (
        f"Our row has 3,072 numbers, the paper's 152 thousand. The emulated link has "
        f"{BANDWIDTH_MBPS:.1f} Mb/s, at which our row takes as long as the paper's at 100 Mb/s. "
        f"Sampled at temperature 1, because greedy drafts carry no rows; sd: {times(run.value('sd', SPEEDUP))}."
    )
    return StudyFindings([chart], [table_of("One part left out at a time", PARTS, columns, caption)])


def _share(values: dict[str, float | None], words: str) -> float | None:
    full, one = values["everything"], values[words]
    return one / full if full and one is not None else None


STUDY = Study(
    name="ablation",
    title="The parts of PicoSpec's pipeline",
    question="What is each part of the pipeline worth?",
    sets=frozenset({"temperature", "bandwidth_mbps"}),
    settings=_settings,
    read=_read,
    limit=4,
    max_new_tokens=32,
    point="picospec-qwen32b",
)

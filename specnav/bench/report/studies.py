# SPDX-License-Identifier: Apache-2.0
"""Draws the page about a folder of studies from their `study.json` files: one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specnav.bench.records.study import StudyResults, load_studies
from specnav.bench.studies import study_named
from specnav.bench.studies.plan import Study, Table
from specnav.report.charts import LineChart, RowChart
from specnav.report.page import REPORT_FILE, positive, what_is_real, when, words_of, write_page
from specnav.results.errors import EvaluationError


@dataclass(frozen=True)
class StudyPage:
    """One study as the template needs it. runs: (folder, label) of the bench runs that exist."""

    name: str
    title: str
    question: str
    alert: str
    charts: Sequence[LineChart | RowChart]
    tables: Sequence[Table]
    how: list[tuple[str, str]]
    runs: list[tuple[str, str]]


def view_study(folder: str, results: StudyResults) -> StudyPage:
    """Prepare one study for the template. folder: of its runs, relative to the page."""
    study = study_named(results.name)
    found = study.read(results)
    return StudyPage(
        name=study.name,
        title=study.title,
        question=study.question,
        alert=_alert(results),
        charts=found.charts,
        tables=[table for table in found.tables if table.rows],
        how=_facts(study, results),
        runs=[(f"{folder}/{one.folder}", one.label) for one in results.settings if one.rows],
    )


def _facts(study: Study, results: StudyResults) -> list[tuple[str, str]]:
    """How a study was measured, name and value."""
    facts = study.how(results) if study.how else how_measured(results)
    if results.point:
        point = f"{results.point.title} ({results.point.source}), overridden by flags"
        facts.insert(0, ("Operating point", point))
    return [*facts, *(("Note", words) for words in results.notes), ("Wall time", f"{results.wall_s:.0f} s")]


def how_measured(results: StudyResults) -> list[tuple[str, str]]:
    """Facts about a study that consists of bench runs: what was emulated and paced, and how many questions."""
    config, real, varied = results.config, dict(what_is_real(results.config)), study_named(results.name).sets
    questions = max((row.questions for one in results.settings for row in one.rows), default=0)
    temperature = positive(config, "temperature")
    facts = [
        ("Link", "varied" if "rtt_ms" in varied else real["Emulated link"]),
        ("Pacing", real["Pacing"]),
        ("γ", "varied" if "gamma" in varied else str(results.gamma)),
        ("Sampling", f"temperature {temperature:g}" if temperature else "greedy"),
        (
            "Questions per method and setting",
            f"{questions}, answers of at most {config.get('max_new_tokens')} tokens",
        ),
        ("Time scale", f"{results.time_scale:g}; milliseconds are scaled back"),
        ("Same tokens as ar", _sameness(results)),
    ]
    if emulated := config.get("acceptance"):
        facts.append(("Acceptance", str(emulated)))
    return facts


def _sameness(results: StudyResults) -> str:
    """In how many runs a method gave the same tokens as `ar`, which makes the methods comparable."""
    rows = [(one.label, row) for one in results.settings for row in one.rows if row.method != "ar"]
    wrong = [f"{row.method} ({label})" for label, row in rows if row.as_ar is False]
    same = sum(bool(row.as_ar) for _, row in rows)
    return f"NOT in {', '.join(wrong)}" if wrong else f"{same} of {len(rows)} runs"


def _alert(results: StudyResults) -> str:
    if not results.error and not results.interrupted:
        return ""
    what = f"The study failed: {results.error}" if results.error else "Interrupted."
    unit = "settings" if results.settings else "measurements"
    return f"{what} Drawn from {results.done} of {results.asked} {unit}; continue with --resume."


def _chips(studies: Sequence[tuple[str, StudyResults]]) -> list[tuple[str, str]]:
    """What is real, emulated and paced; the studies of forwards and of drafts are not paced."""
    if all(study_named(results.name).kind == "batch" for _, results in studies):
        return [("Real", "the verifier's own forward, nothing paced")]
    if all(study_named(results.name).kind == "computed" for _, results in studies):
        return [("Computed", "no model, no process, no link")]
    unpaced = all(study_named(results.name).kind == "drafts" for _, results in studies)
    emulated = any(results.config.get("acceptance") for _, results in studies)
    return [
        *[("Acceptance", "acceptance emulated: the target drafts, with disturbed logits")] * emulated,
        ("Emulated link", "delays on real messages"),
        ("Not paced", "draft forwards") if unpaced else ("Paced", "edge and cloud"),
        ("Real", "separate processes, every message over ZeroMQ"),
    ]


def write_studies(folder: Path) -> Path:
    """Draw `report.html` for a folder of studies; returns its path. Raises EvaluationError."""
    studies = load_studies(folder)
    if not studies:
        raise EvaluationError(f"{folder} holds no study; give the folder that specnav bench study wrote")
    first = studies[0][1]
    number = f"{len(studies)} ablation stud{'y' if len(studies) == 1 else 'ies'}"
    return write_page(
        folder / REPORT_FILE,
        "study.html.jinja",
        lead=f"{number}, {when(first.started_at)}. Each varies one thing "
        "and keeps everything else. Dashed lines and diamonds are the papers' figures.",
        chips=_chips(studies),
        alert="",
        figures=[],
        studies=[view_study(name, results) for name, results in studies],
        machine=words_of(first.machine),
    )

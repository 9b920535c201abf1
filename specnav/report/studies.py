"""The page over a folder of studies: one HTML file that opens offline, drawn from each `study.json` alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from specnav.bench.studies import study_named
from specnav.bench.studies.plan import LineChart, RowChart, Table
from specnav.bench.studies.records import StudyResults, load_studies
from specnav.report import study_charts
from specnav.report.page import REPORT_FILE, TEMPLATES, environment, positive, what_is_real, word
from specnav.results.errors import EvaluationError
from specnav.results.files import write_bytes_atomic


@dataclass(frozen=True)
class ChartView:
    """A picture with what explains it. legend: (name, colour, whether it is a paper's); rings: by number."""

    title: str
    picture: Markup
    legend: list[tuple[str, str, bool]]
    rings: list[str]
    caption: str


@dataclass(frozen=True)
class StudyView:
    """One study as the template wants it. runs: (folder, label) of its bench runs that there are."""

    name: str
    title: str
    question: str
    alert: str
    words: Sequence[str]
    charts: list[ChartView]
    tables: Sequence[Table]
    how: list[str]
    runs: list[tuple[str, str]]


def view_study(folder: str, results: StudyResults) -> StudyView:
    """One study; folder: of its runs, relative to the page."""
    study = study_named(results.name)
    found = study.read(results)
    charts = [view_chart(chart) for chart in found.charts]
    return StudyView(
        name=study.name,
        title=study.title,
        question=study.question,
        alert=_alert(results),
        words=found.words,
        charts=[chart for chart in charts if chart.picture],
        tables=[table for table in found.tables if table.rows],
        how=study.how(results) if study.how else how_measured(results),
        runs=[(f"{folder}/{one.folder}", one.label) for one in results.settings if one.rows],
    )


def how_measured(results: StudyResults) -> list[str]:
    """What was emulated and paced, and how much was asked."""
    config, scale = results.config, results.time_scale
    questions = max((row.questions for one in results.settings for row in one.rows), default=0)
    words = [
        "Edge and cloud are two processes on one machine over real ZeroMQ. Both are paced (a forward takes at least "
        "the time given), the link is emulated, and the pair is ours, not the paper's: read τ first."
    ]
    if emulated := config.get("acceptance"):
        words.append(
            f"As asked: {emulated}. The draft is the target's own weights, its logits disturbed until it is accepted "
            "so; an answer never depends on it."
        )
    if results.point:
        words.append(
            f"Operating point: {results.point.title} ({results.point.source}), flags of the command over it."
        )
    if scale != 1:
        words.append(
            f"Every time of the point (round trip, draft forward, verification) was multiplied by {scale:g}. Ratios "
            f"stay, our own overhead weighs {1 / scale:g} times as much; milliseconds are given as without the scale."
        )
    real = dict(what_is_real(config))
    varied = study_named(results.name).sets
    link = "varied" if "rtt_ms" in varied else real["Emulated link"]
    gamma = "varied" if "gamma" in varied else results.gamma
    words.append(f"As run: link: {link}; {real['Pacing']}.")
    temperature = positive(config, "temperature")
    sampling = f"temperature {temperature:g}" if temperature else "greedy"
    words.append(
        f"{questions} question{'' if questions == 1 else 's'} of at most {config.get('max_new_tokens')} tokens for "
        f"each method in each setting, {sampling}, γ {gamma}; {results.wall_s:.0f} s."
    )
    return [*words, _sameness(results), *results.notes]


def _sameness(results: StudyResults) -> str:
    """Whether every method gave the tokens of `ar`, which is why they can be compared."""
    rows = [(one.label, row) for one in results.settings for row in one.rows if row.method != "ar"]
    wrong = [f"{row.method} ({label})" for label, row in rows if row.identical_to_ar is False]
    if wrong:
        return f"NOT the tokens of ar: {', '.join(wrong)}."
    same = [row for _, row in rows if row.identical_to_ar]
    return f"In {len(same)} of {len(rows)} runs the answers were compared with those of ar: identical, every token."


def _alert(results: StudyResults) -> str:
    if not results.error and not results.interrupted:
        return ""
    what = f"The study failed: {results.error}" if results.error else "Interrupted."
    unit = "settings" if results.settings else "measurements"
    return f"{what} Drawn from {results.done} of {results.asked} {unit}; go on with --resume."


def view_chart(chart: LineChart | RowChart) -> ChartView:
    """A chart as the templates want it."""
    if isinstance(chart, LineChart):
        picture, rings = study_charts.line_chart(chart), study_charts.ring_names(chart)
        return ChartView(chart.title, Markup(picture), [], rings, chart.caption)
    legend = study_charts.row_legend(chart)
    return ChartView(chart.title, Markup(study_charts.row_chart(chart)), legend, [], chart.caption)


def build_studies(studies: Sequence[tuple[str, StudyResults]]) -> str:
    """The page as HTML text; studies: (folder, results)."""
    views = [view_study(folder, results) for folder, results in studies]
    first = studies[0][1]
    when = first.started_at.replace("T", " ").replace("Z", " UTC")
    return (
        environment()
        .get_template("study.html.jinja")
        .render(
            style=Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
            lead=f"{len(views)} ablation stud{'y' if len(views) == 1 else 'ies'}, {when}. In each, one thing is varied "
            "and everything else stays. Dashed lines and diamonds are what the papers print.",
            chips=_chips(studies),
            alert="",
            figures=[],
            studies=views,
            machine=[(name, word(value)) for name, value in first.machine.items()],
        )
    )


def _chips(studies: Sequence[tuple[str, StudyResults]]) -> list[tuple[str, str]]:
    """What is real and what is not; forwards alone, and those of compared drafts, are measured as they come."""
    if all(study_named(results.name).kind == "batch" for _, results in studies):
        return [("Real", "the verifier's own forward, nothing paced")]
    unpaced = all(study_named(results.name).kind == "drafts" for _, results in studies)
    emulated = any(results.config.get("acceptance") for _, results in studies)
    return [
        *([("Acceptance", "acceptance emulated: the target drafts, its logits disturbed")] if emulated else []),
        ("Emulated link", "delays on real messages"),
        ("Not paced", "draft forwards") if unpaced else ("Paced", "edge and cloud"),
        ("Real", "processes of their own, every message over ZeroMQ"),
    ]


def write_studies(folder: Path) -> Path:
    """Draw `report.html` for a folder of studies; returns its path. Raises EvaluationError."""
    studies = load_studies(folder)
    if not studies:
        raise EvaluationError(f"{folder} holds no study; give the folder that a --study wrote")
    path = folder / REPORT_FILE
    write_bytes_atomic(path, build_studies(studies).encode())
    return path

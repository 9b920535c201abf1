# SPDX-License-Identifier: Apache-2.0
"""The report of a bench run: one HTML file that opens offline, drawn from `results.json` and `answers.jsonl`.

Layout, charts and texts are shared with the demo's report. This module adds the parts that compare methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from specdec.edge.stats import RoundStats
from specnav.bench.data.points import QUANTITIES, PaperFigure
from specnav.bench.records.bench import AnswerRecord, BenchResults, BenchRow, load_answers
from specnav.bench.records.predicted import predictions_of
from specnav.bench.records.summary import common_answers, ours_for, time_scale_of
from specnav.report.charts import HALF, ChartLine, LineChart, RowChart, RowSeries, share_bars, timeline
from specnav.report.page import (
    REPORT_FILE,
    Chart,
    Figure,
    alert_text,
    machine_of,
    render,
    what_is_real,
    when,
    words_of,
)
from specnav.results.demo import number_of
from specnav.results.files import write_bytes_atomic
from specnav.results.trace import Span

TIMELINE_ROUNDS = 5
TIMELINE_TOKENS = 8  # an answer with this many tokens by every client is long enough to show
ENGINE_NAMES = {"own": "our own engine", "llamacpp": "llama.cpp", "vllm": "vLLM"}
WINDOW_TOKENS = 32
Window = tuple[float, float]
"""(measured, promised) milliseconds for a window of tokens: what a controller promised of its plans."""


def methods_of(results: BenchResults) -> list[str]:
    """The contestants, in the table's order."""
    return [row.method for row in results.rows]


def lead_text(results: BenchResults) -> str:
    """The first paragraph."""
    most = max((row.questions for row in results.rows), default=0)
    return (
        f"{len(results.rows)} methods, {most} question{'' if most == 1 else 's'} each, "
        f"at most {results.config.get('max_new_tokens')} tokens an answer, {when(results.started_at)}. "
        "The same questions, the same pair, the same link and one machine; all methods answer a question before "
        "the next one begins."
    )


def chips_of(results: BenchResults) -> list[tuple[str, str]]:
    """What is emulated, paced and real, and how tokens are chosen."""
    real = dict(what_is_real(results.config))
    temperature = number_of(results.config, "temperature")
    names = [Path(str(results.config.get(role, "?"))).name for role in ("draft_model", "target_model")]
    oracles = [name for name in methods_of(results) if name.startswith("hf-")]
    engine = str(results.config.get("engine", "own"))
    chips = [
        ("Pair", f"{names[0]} on the edge, {names[1]} in the cloud"),
        ("Engine", f"the target runs on {ENGINE_NAMES.get(engine, engine)}"),
        ("Emulated link", real["Emulated link"]),
        ("Pacing", real["Pacing"]),
        ("Sampling", "greedy" if temperature == 0 else f"temperature {temperature:g}, one seed for all"),
        ("Real", "edge and cloud are two processes, every message goes over ZeroMQ"),
    ]
    if results.acceptance is not None:
        chips[0] = ("Pair", f"{names[1]} on both sides; as the draft, with disturbed logits")
        chips.insert(2, ("Acceptance", results.acceptance.line))
    if oracles:
        chips.append(("One process, no link", ", ".join(oracles)))
    return chips


def headline(results: BenchResults) -> list[Figure]:
    """The headline figures of the run."""
    rows = results.rows
    speeds = [row for row in rows if row.speedup_vs_ar is not None and row.overhead_over_floor is not None]
    best = max(speeds, key=lambda row: row.speedup_vs_ar or 0.0, default=None)
    compared = [row for row in rows if row.identical_to_ar is not None and row.method != "ar"]
    same = sum(bool(row.as_ar) for row in compared)
    near = sum(row.near_ties for row in rows)  # which rounding may flip
    agree = f"except for {near} near-ties" if near else "every id of every answer"
    figures = [
        Figure("Questions", str(max((row.questions for row in rows), default=0)), f"of {results.asked}"),
        Figure(
            "Same tokens as cloud AR",
            f"{same} of {len(compared)}" if compared else "–",
            "methods" if compared else "",
            agree if compared else "not compared",
        ),
    ]
    if best is not None:
        figures.append(
            Figure("Fastest over the link", best.method, "", f"{best.speedup_vs_ar:.2f} times cloud AR")
        )
        overheads = [row for row in speeds if row.method not in ("ar",)] or speeds
        least = min(overheads, key=lambda row: row.overhead_over_floor or 0.0)
        figures.append(
            Figure(
                "Least overhead",
                f"{least.overhead_over_floor:.2f}",
                "× floor",
                f"{least.method}: wall time over forwards and link delays",
            )
        )
    return figures


def beside_the_paper(results: BenchResults) -> list[tuple[PaperFigure, str, int, float | None]]:
    """The paper's figures in the file's order: (figure, quantity in words, digits to show, this run's value)."""
    found, scale = [], time_scale_of(results.config)
    for figure in results.printed:
        words, digits = QUANTITIES[figure.quantity]
        found.append((figure, words.format(figure.over), digits, ours_for(figure, results.rows, scale)))
    return found


def speedup_chart(results: BenchResults) -> RowChart:
    """Tokens per second relative to `ar`, one bar per method, with the paper's figures."""
    rows = [row for row in results.rows if row.speedup_vs_ar is not None]
    papers = {f.method: f.value for f in results.printed if f.quantity == "speedup" and f.over == "ar"}
    linked = tuple(None if row.uplink_bytes_per_round is None else row.speedup_vs_ar for row in rows)
    alone = tuple(row.speedup_vs_ar if row.uplink_bytes_per_round is None else None for row in rows)
    printed = tuple(papers.get(row.method) for row in rows)
    series = [
        RowSeries("over edge and cloud", linked),
        RowSeries("one process, no link", alone, colour="faint"),
        RowSeries("the paper's figure", printed, paper=True, colour="uplink"),
    ]
    return RowChart(
        "Speed-up over cloud AR",
        "tokens a second, over cloud AR",
        tuple(row.method for row in rows),
        tuple(one for one in series if any(one.values)),
        digits=2,
        level=1.0,
        level_label="ar",
        unit="×",
        width=HALF,
    )


def bytes_chart(results: BenchResults) -> RowChart:
    """Mean bytes up and down per round."""
    rows = [row for row in results.rows if row.uplink_bytes_per_round is not None]
    return RowChart(
        "Bytes a round",
        "bytes a round, up / down",
        tuple(row.method for row in rows),
        (
            RowSeries("uplink", tuple(row.uplink_bytes_per_round for row in rows), colour="uplink"),
            RowSeries("downlink", tuple(row.downlink_bytes_per_round for row in rows), colour="downlink"),
        ),
        log=True,
        width=HALF,
        caption="All bytes passed to ZeroMQ, on a logarithmic scale; the prompt is sent once and not included.",
    )


def accepted_lengths(answers: Mapping[str, Sequence[AnswerRecord]]) -> dict[str, list[float]]:
    """For each drafting method, the share of rounds in which 0, 1, 2 … draft tokens were accepted."""
    found = {}
    for method, records in answers.items():
        lengths = [one.accepted for record in records for one in record.rounds if one.drafted]
        if lengths:
            found[method] = [lengths.count(n) / len(lengths) for n in range(max(lengths) + 1)]
    return found


def arrivals(record: AnswerRecord) -> list[float]:
    """When verified tokens arrived at the edge, milliseconds since the answer began."""
    return sorted(span.end_ms for span in record.timeline if span.lane == "downlink" and span.name != "hint")


def tokens_until(record: AnswerRecord, until_ms: float) -> int:
    """Verified tokens at the edge by `until_ms`: one with the reply to the prompt, then those of each round."""
    gained = [1, *(one.gained for one in record.rounds)]
    return min(
        sum(g for at, g in zip(arrivals(record), gained, strict=False) if at <= until_ms), len(record.ids)
    )


def choices_of(answers: Mapping[str, Sequence[AnswerRecord]]) -> list[tuple[str, int, RoundStats]]:
    """The rounds at which a controller chose another mode: (question, round, stats); also the very first round."""
    found = []
    for records in answers.values():
        before = ""
        for record in records:
            for number, one in enumerate(record.rounds, start=1):
                if one.mode and one.mode != before:
                    found.append((f"{record.source} {record.question_id}", number, one))
                    before = one.mode
    return found


def timelines(results: BenchResults, answers: Mapping[str, Sequence[AnswerRecord]]) -> list[Chart]:
    """Timelines of one question's first rounds by every method over a link, on one scale."""
    linked = {m: {a.key: a for a in records if a.timeline} for m, records in answers.items()}
    linked = {method: found for method, found in linked.items() if found}
    if not linked:
        return []
    common = [key for key in next(iter(linked.values())) if all(key in found for found in linked.values())]
    if not common:
        return []
    long_enough = [
        key for key in common if all(len(found[key].ids) >= TIMELINE_TOKENS for found in linked.values())
    ]
    key = (long_enough or common)[0]
    chosen = {method: found[key] for method, found in linked.items()}
    until = max(arrivals(a)[: TIMELINE_ROUNDS + 1][-1] if arrivals(a) else a.wall_ms for a in chosen.values())
    rows = {row.method: row for row in results.rows}
    return [_timeline(method, record, until * 1.02, rows[method]) for method, record in chosen.items()]


def _timeline(method: str, record: AnswerRecord, until_ms: float, row: BenchRow) -> Chart:
    spans: list[Span] = record.timeline
    tokens = tokens_until(record, until_ms)
    picture = timeline(
        spans,
        label="milliseconds since the question was put",
        title=f"Timeline of {method}",
        until_ms=until_ms,
    )
    busy = [
        f"the {lane} is busy {100 * share:.0f} % of the time"
        for lane, share in (("edge", row.edge_busy), ("cloud", row.cloud_busy))
        if share is not None
    ]
    caption = f"{tokens} tokens verified in the time shown. Over all answers {' and '.join(busy)}."
    return Chart(method, picture, caption)


def windows(rounds: Iterable[RoundStats]) -> list[Window]:
    """Split an answer's rounds into windows of at least WINDOW_TOKENS tokens.

    Rounds without a promise are skipped. An incomplete last window is dropped.
    """
    found: list[Window] = []
    took = promised = 0.0
    gained = 0
    for one in rounds:
        if one.promised_ms <= 0.0 or one.took_ms <= 0.0:
            continue
        took, promised, gained = took + one.took_ms, promised + one.promised_ms, gained + one.gained
        if gained >= WINDOW_TOKENS:
            found.append((took, promised))
            took, promised, gained = 0.0, 0.0, 0
    return found


def mean_error(found: Sequence[Window]) -> float | None:
    """Mean of |promised speed / measured speed - 1|; None without windows."""
    return fmean(abs(took / promised - 1.0) for took, promised in found) if found else None


def promises_of(answers: Mapping[str, Sequence[AnswerRecord]]) -> dict[str, list[Window]]:
    """The windows of every method that a controller drives."""
    found = {
        method: [window for record in records for window in windows(record.rounds)]
        for method, records in answers.items()
    }
    return {method: several for method, several in found.items() if several}


def promises_chart(method: str, found: Sequence[Window]) -> LineChart:
    """Chart with one dot per window: promised and measured speed."""
    speeds = [(WINDOW_TOKENS / promised * 1e3, WINDOW_TOKENS / took * 1e3) for took, promised in found]
    ends = [min(min(one) for one in speeds), max(max(one) for one in speeds)]
    return LineChart(
        title=f"{method}: promised and measured",
        x_label="promised, tokens a second",
        y_label="measured",
        lines=(
            ChartLine(method, tuple(sorted(speeds)), method, joined=False),
            ChartLine("as promised", tuple((end, end) for end in ends), "formula", computed=True),
        ),
        caption=f"{len(found)} windows of {WINDOW_TOKENS} tokens of an answer; mean error of the promised speed "
        f"{100 * (mean_error(found) or 0.0):.1f} %. Promises correct for the bias of choosing the best-looking plan.",
    )


def build_bench_page(results: BenchResults, answers: Sequence[AnswerRecord]) -> str:
    """The whole report as HTML text."""
    common = common_answers(answers, methods_of(results))
    predicted = predictions_of(results, common)
    return render(
        "bench.html.jinja",
        results=results,
        lead=lead_text(results),
        chips=chips_of(results),
        alert=alert_text(
            results.error, results.interrupted, "The figures cover the questions that every method answered."
        ),
        figures=headline(results),
        speedups=speedup_chart(results),
        beside=beside_the_paper(results),
        predicted=predicted,
        formulas=list(dict.fromkeys(one.formula for one in predicted)),
        promises=[promises_chart(method, found) for method, found in promises_of(common).items()],
        timelines=timelines(results, common),
        choices=choices_of(common),
        chosen={row.method: row.modes for row in results.rows if row.modes},
        bytes=bytes_chart(results),
        accepted=share_bars(accepted_lengths(common), "Accepted draft tokens a round"),
        config=words_of(results.config),
        machine=machine_of(results.machine, results.wall_s),
    )


def write_bench_report(run: Path) -> Path:
    """Draw `report.html` for a bench run's folder; returns its path. Raises EvaluationError."""
    path = run / REPORT_FILE
    write_bytes_atomic(path, build_bench_page(BenchResults.load(run), load_answers(run)).encode())
    return path

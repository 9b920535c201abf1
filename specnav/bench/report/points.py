# SPDX-License-Identifier: Apache-2.0
"""Writes the page about several operating points, `index.html`, and the same tables as Markdown, `points.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from specnav.bench.report.bench import chips_of
from specnav.bench.report.point_runs import (
    PointRun,
    PointsTable,
    formula_at,
    load_points,
    other_figures,
    paper_of,
    points_tables,
)
from specnav.report.page import shown, words_of, write_page
from specnav.results.files import write_bytes_atomic

INDEX_FILE, MARKDOWN_FILE = "index.html", "points.md"
LEGEND = (
    "Ours / the paper's / its formula's with its own numbers, where they exist. A dash: no value. The "
    "devices are paced and the link is emulated; the pair is ours."
)
SAME = "If greedy, dsd, dssd and dssd-thin equal sd, and picospec-lossy equals picospec: each group is measured once."


def notes_of(run: PointRun) -> list[str]:
    """Notes under the tables: the point's source, how it was emulated, and further remarks."""
    results, point = run.results, run.results.point
    lines = [f"{point.models}. {point.source}."] if point else []
    lines.append("; ".join(f"{name}: {words}" for name, words in chips_of(results) if name != "Real"))
    if run.time_scale != 1:
        lines.append(
            f"Every time was multiplied by {run.time_scale:g}; ratios are unchanged, times are scaled back."
        )
    lines += results.notes
    lines += other_figures(run)
    lines += [point.explained] if point and point.explained else []
    if results.error or results.interrupted:
        lines.append(f"This run is not complete: {results.error or 'interrupted'}.")
    return lines


def comparison_rows(run: PointRun) -> list[tuple[str, str, str, str, str]]:
    """(method, τ, speed-up over `ar`: ours, the paper's, its formula's), if the run has its paper's acceptance."""
    if run.printed is None:
        return []
    return [
        (
            row.method,
            shown(row.tau, 2),
            shown(row.speedup_vs_ar, 2, "×"),
            shown(paper_of(run, row.method, "speedup"), 2, "×"),
            shown(formula_at(run, row.method, "speedup"), 2, "×"),
        )
        for row in run.results.rows
        if row.method != "ar"
    ]


def lead_of(runs: Sequence[PointRun]) -> str:
    """First paragraph: how many points and questions, and how they were run."""
    asked = sorted({row.questions for run in runs for row in run.results.rows})
    tokens = sorted({str(run.results.config.get("max_new_tokens")) for run in runs})
    count = f"{asked[0]}" if len(set(asked)) == 1 else f"{asked[0]} to {asked[-1]}" if asked else "no"
    emulated = any(run.results.acceptance for run in runs)
    return (
        f"{len(runs)} operating points of the papers, {count} questions each, at most {' or '.join(tokens)} tokens "
        "per answer. Every point is one run: the same questions, one pair, one machine, all methods in turn."
        + f" Acceptance emulated: the draft has the target's weights, with logits disturbed until it is accepted as "
        f"often as the paper's. {SAME}" * emulated
    )


def build_markdown(runs: Sequence[PointRun]) -> str:
    """The text of `points.md`: tables of methods by points, and notes on each point."""
    machine = ", ".join(map(" ".join, words_of(runs[0].results.machine)))
    parts = ["# Operating points", "", lead_of(runs), "", f"Machine: {machine}.", ""]
    for table in points_tables(runs):
        parts += [f"## {table.title}", "", LEGEND, "", *_markdown_table(table, runs), ""]
    parts += ["## By point", ""]
    for run in runs:
        parts += [f"### {run.title} (`{run.folder}`)", ""]
        if rows := comparison_rows(run):
            parts += ["| method | τ | ours | paper | its formula |", "|---|---|---|---|---|"]
            parts += [*(f"| {' | '.join(row)} |" for row in rows), ""]
        parts += [*(f"- {line}" for line in notes_of(run)), ""]
    return "\n".join(parts)


def _markdown_table(table: PointsTable, runs: Sequence[PointRun]) -> list[str]:
    rows = [f"| method | {' | '.join(run.folder for run in runs)} |", "|---" * (len(runs) + 1) + "|"]
    for method, cells in table.rows:
        rows.append(f"| {method} | {' | '.join(str(cell) or '–' for cell in cells)} |")
    return rows


def chips_over(runs: Sequence[PointRun]) -> list[tuple[str, str]]:
    """What is emulated in all runs."""
    if not any(run.results.acceptance for run in runs):
        return []
    return [
        ("Acceptance", "acceptance emulated: the target drafts, with disturbed logits"),
        ("Devices", "paced"),
        ("Link", "emulated"),
        ("Real", "edge and cloud are two processes, every message goes over ZeroMQ"),
    ]


def write_points(folder: Path, warn: Callable[[str], None]) -> Path:
    """Write both files for a folder of runs; returns the index page's path. Raises EvaluationError. warn: gets a line
    for what could not be read; the page says it, too.
    """
    missing: list[str] = []
    runs = load_points(folder, missing.append)
    for line in missing:
        warn(line)
    write_bytes_atomic(folder / MARKDOWN_FILE, build_markdown(runs).encode())
    return write_page(
        folder / INDEX_FILE,
        "points.html.jinja",
        lead=lead_of(runs),
        chips=chips_over(runs),
        alert="; ".join(missing),
        figures=[],
        legend=LEGEND,
        runs=runs,
        tables=points_tables(runs),
        notes=[(run, comparison_rows(run), notes_of(run)) for run in runs],
        machine=words_of(runs[0].results.machine),
    )

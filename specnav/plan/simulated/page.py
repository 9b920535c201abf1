# SPDX-License-Identifier: Apache-2.0
"""Draws the page about a fleet's plan from `fleet.json`: one HTML file that opens offline.

Every part of the page says that it is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from specnav.bench.records.capacity import on_line
from specnav.bench.report.studies import StudyPage
from specnav.bench.studies.figures import Crossing, crossings, percent
from specnav.bench.studies.plan import Table
from specnav.plan.simulated.records import FleetResults, SweepPoint
from specnav.plan.simulated.search import order
from specnav.report.charts import ChartLine, LineChart, Mark, RowChart, RowSeries
from specnav.report.page import REPORT_FILE, Figure, shown, when, words_of, write_page

QUESTION = "How many GPUs do the robots need, by method, and what determines the number?"
AMONG_THE_BEST = 0.98
SHOWN_OVER = 1.6
"""Loads whose p95 exceeds the promise by this factor are not drawn."""


def headline(results: FleetResults) -> list[Figure]:
    """Headline figures: GPUs needed, by method."""
    return [
        Figure(
            one.method,
            "–" if one.needed is None else str(one.needed),
            "" if one.needed is None else "GPUs",
            "cannot keep the promise" if one.needed is None else f"{one.dollars_robot_hour or 0:.3f} $ per robot-hour",
        )
        for one in order(results.methods)
    ]


def write_fleet(folder: Path) -> Path:
    """Draw `report.html` beside a folder's `fleet.json`; returns its path. Raises EvaluationError."""
    results = FleetResults.load(folder)
    view = StudyPage(
        name="fleet",
        title=f"{results.robots} robots",
        question=QUESTION,
        alert="",
        charts=_charts(results),
        tables=[table for table in _tables(results) if table.rows],
        how=[("Calibrated from", words) for words in results.calibrated],
        runs=[],
    )
    return write_page(
        folder / REPORT_FILE,
        "fleet.html.jinja",
        lead=f"Simulated, not measured: {results.robots} robots, {results.promise}. {when(results.started_at)}.",
        chips=[("Simulated", "robots, links, directory, GPUs"), ("Calibrated from", results.calibrated[0])],
        alert="Interrupted: some methods or round trips are missing." if results.interrupted else "",
        figures=headline(results),
        study=view,
        config=words_of(results.config),
    )


def _charts(results: FleetResults) -> list[LineChart | RowChart]:
    ordered = order(results.methods)
    able = [one for one in ordered if one.needed is not None]
    charts: list[LineChart | RowChart] = []
    if able:
        names = tuple(one.method for one in able)
        charts.append(
            RowChart(
                f"GPUs for {results.robots} robots, simulated", f"GPUs ({results.promise})", names,
                (RowSeries("GPUs", tuple(float(one.needed or 0) for one in able)),),
            )
        )  # fmt: skip
        prices = tuple(one.dollars_robot_hour for one in able)
        charts.append(
            RowChart("Cost of a robot-hour, simulated", "$", names, (RowSeries("$", prices),), digits=3)
        )
    charts += [_load_chart(results), *_sweep_charts(results)]
    return charts


def _load_chart(results: FleetResults) -> LineChart:
    lines = []
    for one in results.methods:
        points = [(float(n), p95) for n, p95, _ in one.loads if p95 <= SHOWN_OVER * results.promise_ms and n > 1]
        if points:
            lines.append(ChartLine(one.method, tuple(points), one.method))
    return LineChart(
        f"p95 of a {results.promise_of} on {results.gpus} GPUs, simulated", "robots", "ms", tuple(lines),
        level=results.promise_ms, caption="Dashed: the promise. Each dot is a simulated fleet; a line ends before "
        f"the fleet is overloaded, or at {SHOWN_OVER:g} times the promise.",
    )  # fmt: skip


def _sweep_charts(results: FleetResults) -> list[LineChart]:
    if not results.sweep:
        return []
    rtts = tuple(one.rtt_ms for one in results.sweep)
    names = [one.method for one in results.methods if one.method in results.sweep[0].robots]
    borne = _lines(results, names, lambda one: one.robots)
    alone = _lines(results, names, lambda one: one.alone_ms)
    marks = tuple(
        Mark(one.x, f"RTT {one.x:.0f} ms: above it {one.after} serves more robots than {one.before}", one.y)
        for one in overtakings(results)
    )
    return [
        LineChart(
            "Robots that one GPU serves, simulated", "round trip, ms", "robots", borne, rtts, marks,
            caption="Rings: where another method begins to serve the most robots; without auto.",
        ),
        LineChart(
            f"p95 of a {results.promise_of} of one robot alone, simulated", "round trip, ms", "ms", alone, rtts,
            level=results.promise_ms,
        ),
    ]  # fmt: skip


def _lines(
    results: FleetResults, names: list[str], of: Callable[[SweepPoint], Mapping[str, float]]
) -> tuple[ChartLine, ...]:
    return tuple(
        ChartLine(name, tuple((one.rtt_ms, float(of(one)[name])) for one in results.sweep), name) for name in names
    )


def _tables(results: FleetResults) -> list[Table]:
    rows = []
    for one in order(results.methods):
        here = one.here
        p95, ci = here.p95(results.promise_of)
        at = one.at_needed
        rows.append(
            (
                one.method, "–" if one.needed is None else str(one.needed), shown(one.dollars_robot_hour, 3),
                percent(None if at is None else 100 * at.idle), str(one.most), shown(one.marginal, 1),
                "overloaded" if here.overloaded else shown(p95, 0), "" if ci is None else f"± {ci:.0f}",
                percent(100 * here.idle), shown(here.wait_ms, 0), shown(here.batch, 1), shown(here.rows, 0),
                shown(here.forward_ms, 1), shown(here.tau, 2),
            )
        )  # fmt: skip
    head = (
        "Method", "GPUs\nneeded", "$ per\nrobot-hour", "their\nidle share", f"{results.gpus} GPUs\nserve",
        "one GPU\nmore", "p95,\nms", "95 %\ninterval", "idle", "wait,\nms", "sessions\nper forward",
        "rows\nper forward", "forward,\nms", "τ",
    )  # fmt: skip
    caption = (
        f"Simulated. GPUs needed, their price and idle share: for {results.robots} robots with {results.promise}. "
        f"Columns from p95 on: all robots on {results.gpus} GPUs. Idle: share of the GPUs' time without a forward. "
        "Wait: of a draft, or a streamed token, before its forward. The interval is by means of ten batches of the run."
    )
    tables = [Table("Methods", head, tuple(rows), caption)]
    if results.sweep:
        names = [one.method for one in results.methods]
        found = tuple(
            (f"RTT {one.rtt_ms:g} ms", *(str(one.robots.get(name, "–")) for name in names)) for one in results.sweep
        )
        tables.append(Table("Robots that one GPU serves", ("Round trip", *names), found, "Simulated, within 4 %."))
    mixed = [
        (f"{one.method}, {words}", *(f"{name} {share:.0%}" for name, share in list(figures.ways.items())[:3]))
        for one in results.methods
        for words, figures in (("alone", one.alone), (f"all on {results.gpus} GPUs", one.here))
        if figures.ways
    ]
    if mixed:
        width = max(len(row) for row in mixed)
        padded = tuple((*row, *[""] * (width - len(row))) for row in mixed)
        tables.append(Table("Methods chosen by auto", ("", *(["share of decisions"] + [""] * (width - 2))), padded))
    return tables


def overtakings(results: FleetResults) -> list[Crossing]:
    """Round trips above which another method serves the most robots per GPU, without `auto`, which mixes the others.

    `before` serves the most robots below x; y is a number of robots.
    """
    names = [one.method for one in results.methods if one.method != "auto"] if results.sweep else []
    lines = {line.name: [(x, -y) for x, y in line.points] for line in _lines(results, names, lambda one: one.robots)}
    return [
        replace(one, y=-one.y)
        for one in crossings(lines)
        if one.y <= AMONG_THE_BEST * min(on_line(points, one.x) for points in lines.values())
    ]

# SPDX-License-Identifier: Apache-2.0
"""The page over a plan of a fleet: one HTML file that opens offline, drawn from `fleet.json` alone."""

from __future__ import annotations

from pathlib import Path

from specnav.bench.report.studies import StudyPage, view_chart
from specnav.plan.simulated.findings import fleet_findings
from specnav.plan.simulated.records import FleetResults, load_fleet
from specnav.plan.simulated.study import order
from specnav.report.page import REPORT_FILE, Figure, when, words_of, write_page

QUESTION = "How many GPUs do the robots need, by method, and what decides?"


def headline(results: FleetResults) -> list[Figure]:
    """GPUs needed, by method."""
    return [
        Figure(
            one.method,
            "–" if one.needed is None else str(one.needed),
            "" if one.needed is None else "GPUs",
            "cannot keep the promise" if one.needed is None else f"{one.dollars_robot_hour or 0:.3f} $ a robot-hour",
        )
        for one in order(results.methods)
    ]


def write_fleet(folder: Path) -> Path:
    """Draw `report.html` beside a folder's `fleet.json`; returns its path. Raises EvaluationError."""
    results = load_fleet(folder)
    found = fleet_findings(results)
    charts = [view_chart(chart) for chart in found.charts]
    view = StudyPage(
        name="fleet",
        title=f"{results.robots} robots",
        question=QUESTION,
        alert="",
        charts=[chart for chart in charts if chart.picture],
        tables=[table for table in found.tables if table.rows],
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

# SPDX-License-Identifier: Apache-2.0
"""The report on many worlds: one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path

from benchmarks.regret.study import ENOUGH, OF_AR, Regret
from specnav.bench.report.studies import StudyPage
from specnav.bench.studies.plan import Table
from specnav.report.charts import ChartLine, LineChart
from specnav.report.page import render

HOW = [
    ("Real", "the edge: its controller, estimates and drafters, one decoder a world"),
    ("Simulated", "the models (made-up languages), what forwards take, the link, the cloud"),
    ("Answers", "every one of every method was compared with the target's own"),
]


def regret_page(found: Regret) -> str:
    """The page as HTML text."""
    view = StudyPage(
        name="regret",
        title="auto against the best fixed method",
        question="What does it cost to choose a method without knowing the world?",
        alert="",
        charts=charts(found),
        tables=[table(found)],
        how=HOW,
        runs=[],
    )
    return render(
        Path(__file__).with_name("regret.html.jinja"),
        lead=f"Simulated, not measured: {len(found.worlds)} random worlds.",
        chips=[("Real", "the edge's code"), ("Simulated", "models, forwards, link, cloud")],
        alert="",
        figures=[],
        study=view,
    )


def charts(found: Regret) -> list[LineChart]:
    """Every method's share of the best fixed method's speed, worlds in order."""
    names = sorted({name for one in found.worlds for name in one.speeds})
    lines = []
    for name in names:
        shares = sorted(one.speeds[name] / one.speeds[one.best] for one in found.worlds if name in one.speeds)
        points = tuple((100 * (place + 0.5) / len(shares), share) for place, share in enumerate(shares))
        lines.append(ChartLine(name, points, name))
    over_ar = sorted(one.of_ar for one in found.worlds)
    points = tuple((100 * (place + 0.5) / len(over_ar), share) for place, share in enumerate(over_ar))
    return [
        LineChart(
            title="Speed over the best fixed method of each world",
            x_label="percent of the worlds, worst first",
            y_label="×",
            lines=tuple(lines),
            level=ENOUGH,
            caption=f"The line: {ENOUGH}. Above 1, auto was faster than every fixed method.",
        ),
        LineChart(
            title="Speed of auto over ar",
            x_label="percent of the worlds, worst first",
            y_label="×",
            lines=(ChartLine("auto", points, "auto"),),
            level=OF_AR,
            caption=f"The line: {OF_AR}.",
        ),
    ]


def table(found: Regret) -> Table:
    """The table of all worlds, the worst first."""
    rows = [
        (
            f"{one.seed}",
            f"{one.of_best:.3f}",
            f"{one.of_ar:.2f}",
            one.best,
            f"{one.speeds[one.best] / one.speeds['ar']:.2f}",
            f"{one.tokens}",
            one.described,
        )
        for one in sorted(found.worlds, key=lambda one: one.of_best)
    ]
    head = ("World", "auto over best", "auto over ar", "Best fixed", "over ar", "Tokens", "Description")
    return Table("Worlds, the worst first", head, tuple(rows))

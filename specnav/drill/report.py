# SPDX-License-Identifier: Apache-2.0
"""The report of a drill: one HTML file that opens offline, drawn from `results.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from specnav.drill.results import DrillResults, FaultRow, LeakCheck
from specnav.report.charts import HALF, HEX, ROW_PX, ChartLine, LineChart, line_chart, picture
from specnav.report.page import (
    REPORT_FILE,
    Chart,
    Figure,
    alert_text,
    machine_of,
    shown,
    when,
    words_of,
    write_page,
)
from specnav.results.demo import percentile

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

LEAST_MS = 1.0
QUANTITIES = (("rss_mb", "resident memory, MB"), ("fds", "file descriptors"), ("threads", "threads"))
CHIPS = [
    ("Simulated", "robot base, room and camera; the base holds a command for 1 s, like a Go2"),
    ("Real", "verifier, vlm_nav_node and motion_node as processes; ROS 2 over DDS, drafts over ZeroMQ"),
    (
        "Injected",
        "through topics, signals, a proxy between node and verifier, and the simulator's parameters",
    ),
]


def lead_text(results: DrillResults) -> str:
    """The first paragraph of the report."""
    began = when(results.started_at)
    parts = []
    if results.faults:
        parts.append(
            f"{len(results.faults)} faults in {len(results.runs)} runs, while the robot moved or decided, {began}."
        )
        parts.append(
            "Stop: from the fault to the first zero on cmd_vel, by the receiver's clock. Bound: the configured "
            "watchdog and 100 ms, or 300 ms for operator commands."
        )
    if results.leaks:
        parts.append(
            f"Memory and descriptors were watched over {results.leaks[0].turns} turns or more, {began}."
        )
    return " ".join(parts)


def headline(results: DrillResults) -> list[Figure]:
    """The summary as a row of figures."""
    figures = []
    if results.runs:
        passed = sum(run.passed for run in results.runs)
        figures.append(
            Figure(
                "Handled",
                str(passed),
                f"of {len(results.runs)}",
                "stopped in time, gave the reason, recovered",
            )
        )
        orders = [v for row in results.faults if row.bound_ms == 300 for v in row.stop_ms]
        if orders:
            under = f"p99 {shown(percentile(orders, 99))} ms, bound 300 ms, n = {len(orders)}"
            figures.append(Figure("Cancel and stop, p50", shown(percentile(orders, 50)), "ms", under))
        shares = [
            v / row.bound_ms
            for row in results.faults
            if row.bound_ms and row.bound_ms != 300
            for v in row.stop_ms
        ]
        if shares:
            under = f"largest share of its bound, n = {len(shares)}"
            figures.append(Figure("Other faults", shown(100 * max(shares)), "%", under))
    for leak in results.leaks:
        flat = sum(row.flat for row in leak.rows)
        figures.append(
            Figure(f"{leak.turns} {leak.what}", str(flat), f"of {len(leak.rows)} flat", "memory, descriptors")
        )
    return figures


def stop_chart(rows: Sequence[FaultRow], reasons: Mapping[str, Sequence[float]]) -> str:
    """One row per fault on a logarithmic axis of milliseconds: every stop as a dot, the bound as the end of a bar.

    reasons: for faults that found the robot standing, the times when the reason was published; drawn hollow.
    """
    shown = [row for row in rows if row.stop_ms or reasons.get(row.fault)]
    if not shown:
        return ""

    def draw(figure: MplFigure) -> None:
        axes = figure.add_subplot()
        axes.grid(axis="x")
        axes.set_xscale("log")
        for place, row in enumerate(shown):
            if row.bound_ms:
                axes.barh(
                    place, row.bound_ms, 0.6, color=HEX["ok-soft"], gid=f"tip:bound {row.bound_ms:.0f} ms"
                )
                axes.plot((row.bound_ms,) * 2, (place - 0.4, place + 0.4), color=HEX["bad"])
            for value in reasons.get(row.fault, ()):
                tip = f"tip:{row.fault}: reason after {value:.0f} ms"
                axes.plot(max(value, LEAST_MS), place, "o", mfc="none", mec=HEX["muted"], gid=tip)
            for value in row.stop_ms:
                late = row.bound_ms is not None and value > row.bound_ms
                tip, colour = f"tip:{row.fault}: zero after {value:.0f} ms", HEX["bad" if late else "edge"]
                axes.plot(max(value, LEAST_MS), place, "o", color=colour, alpha=0.55, gid=tip)
        axes.set_yticks(range(len(shown)), [row.fault for row in shown])
        for label, row in zip(axes.get_yticklabels(), shown, strict=True):
            label.set_fontweight("normal" if row.passed == row.runs else "bold")
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.set_xlim(left=LEAST_MS)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("milliseconds from the fault")

    return picture(draw, "Stop latencies against their bounds", 1080.0, 64 + 0.8 * ROW_PX * len(shown))


def leak_charts(check: LeakCheck) -> list[Chart]:
    """A chart of every quantity over the seconds (or minutes) since the start."""
    end = max((one.t_s for samples in check.samples.values() for one in samples), default=0.0)
    unit, scale = ("min", 60.0) if end > 300 else ("s", 1.0)
    found = []
    for name, label in QUANTITIES:
        lines = tuple(
            ChartLine(who, tuple((one.t_s / scale, float(getattr(one, name))) for one in samples), who, dotted=False)
            for who, samples in check.samples.items()
        )
        drawn = line_chart(LineChart(label, f"{unit} since the start", label, lines, size=(HALF, 240.0)))
        if drawn:
            found.append(Chart(label, Markup(drawn), ""))
    return found


def write_drill_report(run: Path) -> Path:
    """Draw `report.html` for a run's folder; returns its path. Raises EvaluationError."""
    results = DrillResults.load(run)
    # If the robot was standing, show the time until the reason was published.
    told: dict[str, list[float]] = {}
    for one in results.runs:
        if not one.moving and one.reason_ms is not None:
            told.setdefault(one.fault, []).append(one.reason_ms)
    return write_page(
        run / REPORT_FILE,
        "drill.html.jinja",
        results=results,
        title="specnav drill",
        lead=lead_text(results),
        chips=CHIPS,
        alert=alert_text(
            results.error, results.interrupted, "The figures cover what was measured until then."
        ),
        figures=headline(results),
        stops=Markup(stop_chart(results.faults, told)),
        leaks=[(leak, leak_charts(leak)) for leak in results.leaks],
        config=words_of(results.config),
        machine=machine_of(results.machine, results.wall_s),
    )

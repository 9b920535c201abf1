# SPDX-License-Identifier: Apache-2.0
"""The terminal output of `specnav plan fleet`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from specnav.bench.studies.figures import signed
from specnav.plan.simulated.comparison import GAP_MAY, RATE_MAY, MeasuredComparison
from specnav.plan.simulated.records import FleetResults
from specnav.plan.simulated.study import order
from specnav.terminal import plain_table

LEGEND = (
    "SIMULATED. GPUs: needed for all robots; $: per robot-hour; serve: robots that {gpus} GPUs serve; +1: further "
    "robots per additional GPU; p95: with all robots on {gpus} GPUs (± half of a 95 % interval), ms; idle: share of "
    "those GPUs' time; wait: of a draft in the cloud, ms; batch: sessions per forward; alone: p95 of one robot on one "
    "GPU, ms"
)


def fleet_table(results: FleetResults) -> Table:
    """The table of a plan: one row per method, the one that needs the fewest GPUs first."""
    titles = ("method", "GPUs", "$", "serve", "+1", "p95", "idle", "wait", "batch", "alone")
    title = f"simulated: {results.robots} robots, {results.promise}"
    found = plain_table(titles, {"method"}, title)
    found.caption = LEGEND.format(gpus=results.gpus)
    for one in order(results.methods):
        here = one.here
        p95, ci = here.p95(results.promise_of)
        about = "" if ci is None else f"±{ci:.0f}"
        found.add_row(
            one.method, str(one.needed or "–"),
            "–" if one.dollars_robot_hour is None else f"{one.dollars_robot_hour:.3f}",
            str(one.most), f"{one.marginal:.1f}", "overload" if here.overloaded else f"{p95:.0f}{about}",
            f"{here.idle:.0%}", f"{here.wait_ms:.0f}", f"{here.batch:.1f}",
            f"{one.alone.p95(results.promise_of)[0]:.0f}",
        )  # fmt: skip
    return found


def against_table(found: Sequence[MeasuredComparison]) -> Table:
    """The table that compares measured and simulated figures."""
    titles = ("method", "n", "tok/s", "simulated", "off", "p95 gap", "simulated ", "off ", "batch", "sim.", "")
    table = plain_table(titles, {"method", ""}, "measured and simulated with the same settings")
    table.caption = (
        f"gap: ms between two chunks at a client. Allowed error: {RATE_MAY:.0%} of the rate, {GAP_MAY:.0%} of the gap; "
        "rows limited by processors (client-bound, disturbed) are not judged"
    )
    for one in found:
        gap, off = ("–", "–") if one.gap_ms is None else (f"{one.gap_ms:.0f}", signed(100 * (one.gap_off or 0.0)))
        table.add_row(
            one.method, str(one.clients), f"{one.rate:.1f}", f"{one.simulated_rate:.1f}", signed(100 * one.rate_off),
            gap, f"{one.simulated_gap_ms:.0f}", off, f"{one.batch:.1f}", f"{one.simulated_batch:.1f}",
            one.mark or ("OFF" if one.off else "ok"),
        )  # fmt: skip
    return table

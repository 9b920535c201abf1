# SPDX-License-Identifier: Apache-2.0
"""Prints the results of `specnav doctor --gpu`, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from specnav.doctor.gpu.records import EXITS_TARGET, VERIFY_TARGET, GpuFindings, ModelFindings

GIB, GB = 2**30, 1e9


def as_json(findings: GpuFindings) -> dict[str, Any]:
    """All results, with ratios and goals added."""
    told = asdict(findings)
    for one, model in zip(told["models"], findings.models, strict=True):
        for forward, time in zip(one["forwards"], model.forwards, strict=True):
            forward["over_floor"] = time.over_floor
        if model.growing is not None:
            one["growing"]["bottleneck"] = model.growing.bottleneck
        if model.flips is not None:
            one["flips"]["sound"] = model.flips.sound
        if model.exits is not None:
            one["exits"]["cost"] = model.exits.cost
    told["targets"] = {"verify_over_floor": VERIFY_TARGET, "exits_cost": EXITS_TARGET}
    return told


def show(findings: GpuFindings, console: Console) -> None:
    """Print tables: the device and each model, forward passes by rows and context, and the choice of `auto`."""
    device = findings.device
    console.print(
        f"{device.name}, {device.free_bytes / GIB:.1f} of {device.total_bytes / GIB:.1f} GiB free, "
        f"torch {device.torch}",
        highlight=False,
    )
    console.print(_models(findings))
    for one in findings.models:
        if one.forwards:
            console.print(_forwards(one))
    if findings.agreement is not None:
        console.print(_auto(findings))
    for note in findings.notes:
        console.print(note, highlight=False)
    if device.kind == "cpu":
        console.print(
            "A CPU has no launches and no waiting reads: both are counted as they would be on a GPU.",
            highlight=False,
        )


def _models(findings: GpuFindings) -> Table:
    """A table with one column per model."""
    table = Table(title="results by model", title_justify="left")
    table.add_column("")
    for one in findings.models:
        table.add_column(
            f"{one.role}, {one.variant}\n{one.model.rstrip('/').rsplit('/')[-1]}", overflow="fold"
        )
    rows: dict[str, Callable[[ModelFindings], str]] = {
        "weights (planned)": lambda one: f"{_bytes(one.loaded_bytes)} ({_bytes(one.planned_bytes)})",
        "loaded in": lambda one: f"{one.load_s:.1f} s",
        "memory bandwidth": lambda one: f"{one.bandwidth / GB:.0f} GB/s",
        "1 row": lambda one: _over(one, 1),
        f"{findings.gamma + 1} rows": lambda one: _over(one, findings.gamma + 1),
        "token of a growing answer": _growing,
        "operations per forward pass": lambda one: str(one.launches),
        "reads per verdict, per draft": lambda one: f"{one.verify_reads}, {one.draft_reads}",
        "picks that flip": _flips,
        "exits": _exits,
        "a picture": _vision,
    }
    for name, cell in rows.items():
        table.add_row(name, *("" if one.error else cell(one) for one in findings.models))
    if any(one.error for one in findings.models):
        table.add_row("not measured", *(f"[red]{escape(one.error)}[/]" for one in findings.models))
    table.caption = (
        "times of forward passes, and multiples of the memory floor (goals: a verification "
        f"at most {VERIFY_TARGET:g} times, exits at most {EXITS_TARGET:+.0%})"
    )
    return table


def _bytes(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def _vision(one: ModelFindings) -> str:
    seen = one.vision
    if seen is None:
        return "–"
    size = f"{seen.width}×{seen.height}: {seen.tokens} tokens"
    return f"{size}, {seen.prepare_ms:.1f} + {seen.tower_ms:.1f} ms"


def _over(one: ModelFindings, rows: int) -> str:
    found = next(forward for forward in one.forwards if forward.rows == rows)
    colour = "green" if found.over_floor <= VERIFY_TARGET else "yellow"
    return f"{found.ms:.2f} ms [{colour}]{found.over_floor:.2f}×[/]"


def _growing(one: ModelFindings) -> str:
    growing = one.growing
    if growing is None:
        return "–"
    times = f"first {growing.first_ms:.2f}, later {growing.later_ms:.2f}, served {growing.served_ms:.2f} ms"
    colour = "green" if growing.bottleneck == "at the floor" else "yellow"
    return f"{times}: [{colour}]{growing.bottleneck}[/]"


def _flips(one: ModelFindings) -> str:
    flips = one.flips
    if flips is None:
        return ""
    told = f"{flips.picks} of {flips.positions}"
    if not flips.picks:
        return f"{told}, noise {flips.noise:.1g}"
    mark = "near-ties" if flips.sound else "[red]NOT near-ties[/]"
    return f"{told} {mark}: {flips.margin:.1g}, noise {flips.noise:.1g}"


def _exits(one: ModelFindings) -> str:
    if one.exits is None:
        return "–"
    colour = "green" if one.exits.cost <= EXITS_TARGET else "yellow"
    layers = ",".join(map(str, one.exits.layers))
    return f"[{colour}]{one.exits.cost:+.0%}[/] (layer {layers})"


def _forwards(one: ModelFindings) -> Table:
    contexts = sorted({forward.context for forward in one.forwards})
    table = Table(
        title=f"{one.role} as {one.variant}: ms per forward pass (multiple of the floor)",
        title_justify="left",
    )
    table.add_column("context", justify="right")
    by_place = {(forward.context, forward.rows): forward for forward in one.forwards}
    rows = sorted({forward.rows for forward in one.forwards})
    for count in rows:
        table.add_column(f"{count} row{'s' * (count > 1)}", justify="right")
    for context in contexts:
        found = [by_place[context, count] for count in rows]
        table.add_row(str(context), *(f"{each.ms:.2f} ({each.over_floor:.1f}×)" for each in found))
    return table


def _auto(findings: GpuFindings) -> Table:
    title = f"choice of `auto`: the draft model agrees with {findings.agreement:.0%} of the target's tokens"
    table = Table(title=title, title_justify="left")
    for column in ("round trip", "plan", "why"):
        table.add_column(column, overflow="fold")
    for choice in findings.auto:
        table.add_row(f"{choice.rtt_ms:g} ms", choice.plan, choice.why)
    return table

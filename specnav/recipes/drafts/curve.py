# SPDX-License-Identifier: Apache-2.0
"""The acceptance curve of a training run: τ on held-out answers over the updates, as JSON and as SVG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from specdec.whole_files import write_whole
from specnav.recipes.folders import roomy
from specnav.recipes.loop import read_log
from specnav.report.charts import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class AcceptancePoint(msgspec.Struct, frozen=True):
    """One point: τ and agreement after `step` updates and `seconds` of training."""

    step: int
    seconds: float
    tau: float
    agreement: float


def read_curve(log: Path) -> list[AcceptancePoint]:
    """The points in the training loop's log."""
    return [msgspec.convert(noted, AcceptancePoint) for noted in read_log(log) if "tau" in noted]


def write_curve(folder: Path, points: list[AcceptancePoint], gamma: int) -> None:
    """Write `acceptance.json` and `acceptance.svg`, each atomically."""
    rounded = [
        AcceptancePoint(p.step, round(p.seconds, 1), round(p.tau, 4), round(p.agreement, 4)) for p in points
    ]
    found = {"gamma": gamma, "points": msgspec.to_builtins(rounded)}
    with roomy(folder):
        write_whole(folder / "acceptance.json", f"{json.dumps(found, indent=1)}\n".encode())
        write_whole(folder / "acceptance.svg", draw_curve(points, gamma).encode())


def draw_curve(points: list[AcceptancePoint], gamma: int) -> str:
    """Draw the curve as an SVG document."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([point.step for point in points], [point.tau for point in points])
        axes.set_title(f"τ at γ = {gamma} on held-out answers (tokens per verification)")
        axes.set_xlabel("updates")
        axes.grid(axis="y")
        if points:
            last = points[-1]
            axes.annotate(
                f"{last.tau:.2f}",
                (last.step, last.tau),
                (-6, 8),
                textcoords="offset points",
                ha="right",
                weight="bold",
            )

    return document(draw, 560.0, 320.0)

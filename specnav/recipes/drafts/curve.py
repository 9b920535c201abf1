# SPDX-License-Identifier: Apache-2.0
"""The acceptance curve of a run: τ on held-out answers over the updates, as JSON and as a picture, while it trains."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec.whole_files import write_whole
from specnav.recipes.errors import TrainingError
from specnav.report.charts import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class AcceptancePoint:
    """After this many updates and seconds of training."""

    step: int
    seconds: float
    tau: float
    agreement: float


def read_curve(log: Path) -> list[AcceptancePoint]:
    """The points that the loop has noted; updates done again after a kill count as done last. What a kill has left
    half written counts for nothing.
    """
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    except OSError as error:
        raise TrainingError(f"{log} cannot be read ({error.strerror or error})") from error
    noted: dict[int, dict] = {}
    for line in lines:
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and {"step", "seconds", "tau", "agreement"} <= said.keys():
                noted[said["step"]] = said
    return [
        AcceptancePoint(step, noted[step]["seconds"], noted[step]["tau"], noted[step]["agreement"])
        for step in sorted(noted)
    ]


def write_curve(folder: Path, points: list[AcceptancePoint], gamma: int) -> None:
    """`acceptance.json` and `acceptance.svg`, each whole or not at all."""
    found = {
        "gamma": gamma,
        "points": [
            {
                "step": p.step,
                "seconds": round(p.seconds, 1),
                "tau": round(p.tau, 4),
                "agreement": round(p.agreement, 4),
            }
            for p in points
        ],
    }
    _at_once(folder / "acceptance.json", json.dumps(found, indent=1) + "\n")
    _at_once(folder / "acceptance.svg", draw_curve(points, gamma))


def draw_curve(points: list[AcceptancePoint], gamma: int) -> str:
    """An SVG document."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.plot([point.step for point in points], [point.tau for point in points])
        axes.set_title(f"τ at γ = {gamma} on answers held out (tokens a verification)")
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


def _at_once(file: Path, content: str) -> None:
    try:
        write_whole(file, content.encode())
    except OSError as error:
        raise TrainingError(f"{file} cannot be written ({error.strerror or error}): make room, then go on") from error

"""The acceptance curve of a run: τ on held-out answers over the updates, as JSON and as a picture, while it trains."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specdec.whole_files import write_whole
from specnav.recipes.errors import TrainingError
from specnav.recipes.exits.curves import STYLE
from specnav.report.drawing import Scale, axis_bottom, axis_left, text, ticks, trail

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560.0, 320.0, 52.0, 16.0, 34.0, 46.0


@dataclass(frozen=True)
class Point:
    """After so many updates and seconds of training."""

    step: int
    seconds: float
    tau: float
    agreement: float


def read_curve(log: Path) -> list[Point]:
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
        Point(step, noted[step]["seconds"], noted[step]["tau"], noted[step]["agreement"]) for step in sorted(noted)
    ]


def write_curve(folder: Path, points: list[Point], gamma: int) -> None:
    """`acceptance.json` and `acceptance.svg`, each whole or not at all."""
    found = {
        "gamma": gamma,
        "points": [
            {"step": p.step, "seconds": round(p.seconds, 1), "tau": round(p.tau, 4), "agreement": round(p.agreement, 4)}
            for p in points
        ],
    }
    _at_once(folder / "acceptance.json", json.dumps(found, indent=1) + "\n")
    _at_once(folder / "acceptance.svg", draw_curve(points, gamma))


def draw_curve(points: list[Point], gamma: int) -> str:
    """An SVG document."""
    taus = [point.tau for point in points] or [1.0]
    low, high = min(taus), max(taus)
    margin = max(0.1 * (high - low), 0.05)
    across = Scale(0.0, max([point.step for point in points], default=1) or 1, LEFT, WIDTH - RIGHT)
    up = Scale(max(low - margin, 0.0), high + margin, HEIGHT - BOTTOM, TOP)
    body = [
        text(LEFT, 18, f"τ at γ = {gamma} on answers held out (tokens a verification)", kind="strong"),
        axis_left(up, across.start, across.end, ticks(up.low, up.high, 5)),
        trail([(across(point.step), up(point.tau)) for point in points], "stroke:hsl(210,65%,45%)"),
        axis_bottom(across, HEIGHT - BOTTOM, ticks(0, across.high, 6), "updates", HEIGHT - 8),
    ]
    if points:
        last = points[-1]
        body.append(text(across(last.step) - 34, up(last.tau) - 6, f"{last.tau:.2f}", kind="strong"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" '
        f'height="{HEIGHT:g}"><style>{STYLE}</style>{"".join(body)}</svg>\n'
    )


def _at_once(file: Path, content: str) -> None:
    try:
        write_whole(file, content.encode())
    except OSError as error:
        raise TrainingError(f"{file} cannot be written ({error.strerror or error}): make room, then go on") from error

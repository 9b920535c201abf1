"""The curves of a run as one picture that stands alone: loss and per-exit agreement over the updates."""

from __future__ import annotations

import json
from pathlib import Path

from specnav.recipes.errors import TrainingError
from specnav.report.drawing import Scale, axis_bottom, axis_left, text, ticks, trail

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 940.0, 320.0, 52.0, 34.0, 46.0
PLOT = 360.0
LABEL = 13.0
"""Least distance of two labels, pixels."""
STYLE = (
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#888}.grid{stroke:#e4e4e4}"
    ".strong{font-weight:600}svg{background:#fff}"
)


def read_log(file: Path) -> list[dict[str, float]]:
    """What the loop noted, one entry an update noted; updates done again after a kill count as done last."""
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise TrainingError(f"{file} has no curves: delete the run folder and train again") from error
    noted = {line["step"]: line for line in lines}
    return [noted[step] for step in sorted(noted)]


def draw_curves(noted: list[dict[str, float]], layers: tuple[int, ...]) -> str:
    """An SVG document."""
    steps = [entry["step"] for entry in noted]
    losses = {"loss": [entry["loss"] for entry in noted]}
    agreement = {f"layer {layer}": [entry[f"exit_{layer}"] for entry in noted] for layer in layers}
    body = _plot("loss: distance from the final exit", steps, losses, 0.0, max(losses["loss"], default=1.0))
    right = _plot("agreement with the final exit, top-1", steps, agreement, WIDTH / 2, 1.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" '
        f'height="{HEIGHT:g}"><style>{STYLE}</style>{body}{right}</svg>\n'
    )


def _plot(title: str, steps: list[float], lines: dict[str, list[float]], offset: float, most: float) -> str:
    across = Scale(0.0, max(steps, default=1), offset + LEFT, offset + LEFT + PLOT)
    up = Scale(0.0, most, HEIGHT - BOTTOM, TOP)
    body = [
        text(offset + LEFT, 18, title, kind="strong"),
        axis_left(up, across.start, across.end, ticks(0, most, 5)),
    ]
    labels: list[tuple[float, str, str]] = []
    for place, (name, values) in enumerate(lines.items()):
        colour = f"hsl({round(210 + 250 * place / max(len(lines), 1)) % 360},65%,45%)"
        smooth = _smooth(values)
        body.append(
            trail([(across(s), up(v)) for s, v in zip(steps, smooth, strict=True)], f"stroke:{colour}")
        )
        if smooth and len(lines) > 1 and (len(lines) <= 8 or place % (len(lines) // 8 + 1) == 0):
            labels.append((up(smooth[-1]) + 4, name, colour))
    lowest = TOP - LABEL
    for y, name, colour in sorted(labels):
        lowest = max(y, lowest + LABEL)
        body.append(text(across.end + 4, lowest, name, style=f"fill:{colour}"))
    body.append(axis_bottom(across, HEIGHT - BOTTOM, ticks(0, across.high, 6), "updates", HEIGHT - 8))
    return "".join(body)


def _smooth(values: list[float]) -> list[float]:
    """A running mean, the longer the more values there are: single batches jump, and a short run must not be hidden."""
    keep = max(0.0, 0.8 - 8 / max(len(values), 1))
    out: list[float] = []
    for value in values:
        out.append(value if not out else keep * out[-1] + (1 - keep) * value)
    return out

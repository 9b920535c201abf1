# SPDX-License-Identifier: Apache-2.0
"""Draws the curves of a run as one standalone SVG: loss and agreement per exit over the updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specnav.report.charts import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_curves(noted: list[dict[str, float]], layers: tuple[int, ...]) -> str:
    """Draw the curves as an SVG document."""
    steps = [entry["step"] for entry in noted]

    from matplotlib.colors import to_hex

    def draw(figure: Figure) -> None:
        loss, agreement = figure.subplots(1, 2)
        loss.plot(steps, _smooth([entry["loss"] for entry in noted]))
        loss.set_title("loss: distance from the final exit")
        agreement.set_prop_cycle(color=[to_hex(f"C{place % 10}") for place in range(len(layers))])
        for layer in layers:
            agreement.plot(
                steps, _smooth([entry[f"exit_{layer}"] for entry in noted]), label=f"layer {layer}"
            )
        agreement.set_title("agreement with the final exit, top-1")
        agreement.set_ylim(0.0, 1.0)
        if layers:
            figure.legend(loc="outside right center")
        for axes in (loss, agreement):
            axes.set_xlabel("updates")
            axes.grid(axis="y")
            axes.set_ylim(bottom=0.0)

    return document(draw, 940.0, 320.0)


def _smooth(values: list[float]) -> list[float]:
    """A running mean, longer for more values, because single batches vary but a short run must stay visible."""
    keep = max(0.0, 0.8 - 8 / max(len(values), 1))
    out: list[float] = []
    for value in values:
        out.append(value if not out else keep * out[-1] + (1 - keep) * value)
    return out

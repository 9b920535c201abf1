"""The charts of a study's findings as inline SVG: lines against a number, and named rows with bars or dots.

A method has one colour in every chart. Ours is filled, with full lines; what a paper printed is a diamond, dashed.
"""

from __future__ import annotations

from collections.abc import Sequence

from specnav.bench.studies.plan import Line, LineChart, Mark, RowChart, RowSeries
from specnav.report.drawing import (
    Scale,
    axis_bottom,
    axis_left,
    circle,
    line,
    outline,
    rect,
    svg,
    text,
    ticks,
    trail,
)

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 900.0, 380.0, 58.0, 34.0, 48.0
LABELS, LABEL_STEP, LABEL_CHAR_PX = 14.0, 15.0, 8.2
NEAREST_TICKS = 20.0
ROW, BAR, VALUE_PX = 28.0, 16.0, 60.0
COLOURS = {
    "ar": "var(--wall)",
    "cloud-sd": "var(--policy)",
    "sd": "var(--edge)",
    "fsd": "var(--cloud)",
    "fsd+overlap:hints": "var(--downlink)",
    "auto": "var(--ok)",
    "paper": "var(--uplink)",
    "formula": "var(--faint)",
}
OTHER_COLOURS = ("var(--bad)", "var(--downlink)", "var(--uplink)", "var(--path)", "var(--faint)")
SHADES = ("var(--edge)", "var(--cloud)", "var(--downlink)")
HALO = "paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round"


def colours_of(families: Sequence[str]) -> dict[str, str]:
    """A colour for each family; those that have none of their own take turns."""
    others = [name for name in dict.fromkeys(families) if name not in COLOURS]
    taken = {name: OTHER_COLOURS[place % len(OTHER_COLOURS)] for place, name in enumerate(others)}
    return {name: COLOURS.get(name) or taken[name] for name in families}


def line_chart(chart: LineChart) -> str:
    """Lines with dots; "" when nothing was measured."""
    ours = [one for one in chart.lines if one.points and not one.paper]
    if not ours:
        return ""
    lines = [one for one in chart.lines if one.points]
    colours = colours_of([one.family for one in lines])
    right = LABELS + LABEL_CHAR_PX * max(len(one.name) for one in lines if not one.computed)
    xs = [x for one in lines for x, _ in one.points] + list(chart.x_ticks)
    ys = [y for one in lines for _, y in one.points] + ([] if chart.level is None else [chart.level])
    low = 0.0 if min(ys) < 0.5 * max(ys) else min(ys) - 0.15 * (max(ys) - min(ys) or 0.2)
    across = Scale(min(xs), max(xs), LEFT + 10, WIDTH - right)
    up = Scale(low, max(ys) + 0.05 * (max(ys) - low), HEIGHT - BOTTOM, TOP)
    body = [axis_left(up, LEFT, WIDTH - right, ticks(low, up.high, 6)), text(LEFT - 44, 14, chart.y_label)]
    if chart.level is not None:
        y = up(chart.level)
        body.append(line(LEFT, y, WIDTH - right, y, "axis", "stroke:var(--ink);stroke-dasharray:4 3"))
    body += [_x_mark(one, across, up) for one in chart.marks if one.y is None]
    body += [_drawn(one, colours[one.family], across, up) for one in sorted(lines, key=lambda one: one.paper)]
    rings = [one for one in chart.marks if one.y is not None]
    body += [_ring(one, number, across, up) for number, one in enumerate(rings, start=1)]
    body.append(_end_labels(lines, colours, across, up))
    shown = _far_enough(chart.x_ticks or ticks(across.low, across.high, 8), across)
    body.append(axis_bottom(across, HEIGHT - BOTTOM, shown, "", 0))
    body.append(text(across.end, HEIGHT - 8, chart.x_label, "end"))
    return svg(WIDTH, HEIGHT, "".join(body), chart.title)


def ring_names(chart: LineChart) -> list[str]:
    """What the numbered rings of a chart are, in their order."""
    return [one.label for one in chart.marks if one.y is not None]


def row_chart(chart: RowChart) -> str:
    """A bar a row, or dots and diamonds where there are several series; "" when nothing was measured."""
    measured = [v for one in chart.series if not one.paper for v in one.values if v is not None]
    if not measured:
        return ""
    values = [v for one in chart.series for v in one.values if v is not None]
    values += [] if chart.level is None else [chart.level]
    left = 22 + 7.4 * max(len(name) for name in chart.rows)
    bottom = TOP + ROW * len(chart.rows)
    across = Scale(0, max(values) * 1.02 or 1.0, left, WIDTH - VALUE_PX)
    body = []
    for value in ticks(0, across.high, 8):
        body.append(line(across(value), TOP - 6, across(value), bottom, "grid"))
        body.append(text(across(value), bottom + 16, f"{value:g}", "middle"))
    if chart.level is not None:
        x = across(chart.level)
        body.append(
            line(x, TOP - 8, x, bottom, "axis", "stroke:var(--uplink);stroke-width:1.5;stroke-dasharray:4 3")
        )
        body.append(
            text(x, TOP - 13, f"{chart.level_label} {chart.level:g}", "middle", style="fill:var(--uplink)")
        )
    for place, name in enumerate(chart.rows):
        y = TOP + ROW * place + ROW / 2
        body.append(text(left - 8, y + 4, name, "end", "strong"))
        body += _row(chart, place, y, across)
    body.append(text(WIDTH - VALUE_PX, bottom + 36, chart.x_label, "end"))
    return svg(WIDTH, bottom + 42, "".join(body), chart.title)


def row_legend(chart: RowChart) -> list[tuple[str, str, bool]]:
    """(name, colour, whether it is a paper's) of each series, where there are several."""
    return [(one.name, SHADES[one.shade % len(SHADES)], one.paper) for one in chart.series] * (
        len(chart.series) > 1
    )


def _row(chart: RowChart, place: int, y: float, across: Scale) -> list[str]:
    if len(chart.series) > 1:
        return [
            _dot(across(value), y, one, f"{chart.rows[place]}, {one.name}: {value:.1f}")
            for one in sorted(chart.series, key=lambda one: not one.paper)
            if (value := one.values[place]) is not None
        ]
    value = chart.series[0].values[place]
    if value is None:
        return [text(across.start + 6, y + 4, "not measured", style="fill:var(--faint)")]
    said = f"{value:.{chart.digits}f}"
    return [
        rect(
            across.start,
            y - BAR / 2,
            across(value) - across.start,
            BAR,
            "var(--edge)",
            f"{chart.rows[place]}: {said}",
        ),
        text(across(value) + 6, y + 4, said, "start", "strong", HALO),
    ]


def _dot(x: float, y: float, series: RowSeries, title: str) -> str:
    colour = SHADES[series.shade % len(SHADES)]
    return _diamond(x, y, colour, title) if series.paper else circle(x, y, 6, f"fill:{colour}", title)


def _drawn(one: Line, colour: str, across: Scale, up: Scale) -> str:
    places = [(across(x), up(y)) for x, y in one.points]
    dashes = ";stroke-dasharray:6 4" if one.paper or one.computed or one.family == "formula" else ""
    parts = [trail(places, f"stroke:{colour};stroke-width:2{dashes}")] if one.joined else []
    for (x, y), (at_x, at_y) in zip(one.points, places, strict=True):
        title = f"{one.name}, {x:g}: {y:.2f}"
        parts.append(
            _diamond(at_x, at_y, colour, title)
            if one.paper
            else circle(at_x, at_y, 4, f"fill:{colour}", title)
        )
    return "".join(parts)


def _diamond(x: float, y: float, colour: str, title: str) -> str:
    corners = [(x - 6, y), (x, y - 6), (x + 6, y), (x, y + 6)]
    return outline(corners, f"fill:var(--panel);stroke:{colour};stroke-width:2", title)


def _x_mark(one: Mark, across: Scale, up: Scale) -> str:
    x = across(one.x)
    anchor = "start" if x < (across.start + across.end) / 2 else "end"
    shift = 6 if anchor == "start" else -6
    return line(x, up.end, x, up.start, "axis", "stroke:var(--uplink);stroke-dasharray:2 4") + text(
        x + shift, up.end + 4, one.label, anchor, style=f"fill:var(--uplink);{HALO}"
    )


def _ring(one: Mark, number: int, across: Scale, up: Scale) -> str:
    x, y = across(one.x), up(one.y or 0.0)
    return (
        line(x, y, x, up.start, "axis", "stroke:var(--ink);stroke-dasharray:2 4")
        + circle(x, y, 9, "fill:var(--panel);stroke:var(--ink);stroke-width:1.5", one.label)
        + text(x, y + 4, str(number), "middle", "strong", "pointer-events:none")
    )


def _end_labels(lines: Sequence[Line], colours: dict[str, str], across: Scale, up: Scale) -> str:
    """Names right of the plot, each as near its line's end as the others let it; a hair leads there from far away."""
    ends = sorted(((up(one.points[-1][1]), one) for one in lines if not one.computed), key=lambda end: end[0])
    parts = []
    for y, (_, one) in zip(apart([y for y, _ in ends], TOP, HEIGHT - BOTTOM), ends, strict=True):
        colour, (x, value) = colours[one.family], one.points[-1]
        if across(x) < across.end - 1:
            hair = f"stroke:{colour};stroke-width:.7;stroke-dasharray:1 4"
            parts.append(trail([(across(x) + 6, up(value)), (across.end + 8, y)], hair))
        parts.append(
            text(across.end + LABELS, y + 4, one.name, style=f"fill:{colour};font-weight:600")
        )
    return "".join(parts)


def apart(ys: Sequence[float], top: float, bottom: float, step: float = LABEL_STEP) -> list[float]:
    """Heights in order, moved so that neighbours are a step apart: down first, then up again from the bottom."""
    placed: list[float] = []
    for y in ys:
        placed.append(max(y, placed[-1] + step if placed else top))
    lowest = bottom
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], lowest)
        lowest = placed[place] - step
    return placed


def _far_enough(values: Sequence[float], across: Scale) -> list[float]:
    """The values whose labels do not touch."""
    kept: list[float] = []
    for value in values:
        if not kept or across(value) - across(kept[-1]) >= NEAREST_TICKS:
            kept.append(value)
    return kept

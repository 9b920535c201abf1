# SPDX-License-Identifier: Apache-2.0
"""The charts of all reports: data in, SVG out, drawn by matplotlib when the report is written.

The SVG is embedded in the page, which therefore opens offline and needs no script. Colours are variables of the style
sheet and fonts are the page's, so a chart follows the page's light or dark mode. Dots and bars show their value as a
tooltip.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from specnav.results.demo import percentile
from specnav.results.trace import Span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HALF = 900.0, 520.0
"""Width in pixels of a chart as wide as the page, and of one of two side by side."""
ROW_PX, CHAR_PX, LABEL_PX = 28.0, 7.0, 15.0
SHARES_A_ROW, LONGEST_NAME = 4, 24
VARIABLES = (
    "ink", "muted", "faint", "line", "soft", "panel", "edge", "uplink", "cloud", "downlink", "ok", "ok-soft", "bad",
    "policy", "policy-soft", "wall", "path", "drafted", "floor",
)  # fmt: skip
HEX = {name: f"#01fe{place:02x}" for place, name in enumerate(VARIABLES)}
"""Placeholder colours for variables of the style sheet while matplotlib draws; nothing else uses them."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "specnav", "font.family": "DejaVu Sans", "font.size": 12.0,
    "text.color": HEX["ink"], "axes.labelcolor": HEX["muted"], "axes.edgecolor": HEX["faint"],
    "xtick.color": HEX["faint"], "ytick.color": HEX["faint"], "xtick.labelcolor": HEX["muted"],
    "ytick.labelcolor": HEX["muted"], "grid.color": HEX["line"], "axes.axisbelow": True, "axes.spines.top": False,
    "axes.spines.right": False, "axes.spines.left": False, "ytick.major.size": 0.0, "lines.linewidth": 2.0,
    "xaxis.labellocation": "right",
}  # fmt: skip
FAMILIES = {
    "ar": "wall", "cloud-sd": "policy", "sd": "edge", "fsd": "cloud", "fsd+overlap:hints": "downlink", "auto": "ok",
    "paper": "uplink", "formula": "faint",
}  # fmt: skip
"""Colour by family of a line; a method has the same colour in every chart."""
OTHERS = ("bad", "downlink", "uplink", "path", "faint")
SHADES = ("edge", "cloud", "downlink", "uplink", "policy")
CLIPPED = "clipped"
"""Id of artists that are clipped at their clip path; all others are not clipped."""
LANES = ("edge", "uplink", "cloud", "downlink")
AHEAD, SHADOW = "ahead", "shadow"
"""Suffixes of spans for work that nothing waited for yet; they are drawn pale."""


@dataclass(frozen=True)
class ChartLine:
    """One line of a chart. family: its subject, which determines the colour. paper: printed in a paper, not measured.

    joined: whether points are connected; false for figures of different systems. computed: by a formula, not measured.
    high: upper ends of whiskers at the points. dotted: whether each point has a dot.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    family: str
    paper: bool = False
    joined: bool = True
    computed: bool = False
    high: tuple[float, ...] = ()
    dotted: bool = True


@dataclass(frozen=True)
class Mark:
    """A named place on a chart's x axis. y: height of a ring drawn there; None for a vertical line."""

    x: float
    label: str
    y: float | None = None


@dataclass(frozen=True)
class LineChart:
    """A chart of quantities over a number. level: height of a reference line, for example 1 for "as fast as ar"."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[ChartLine, ...]
    x_ticks: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    level: float | None = None
    caption: str = ""
    size: tuple[float, float] = (WIDTH, 380.0)

    is_wide, legend = True, ()

    @cached_property
    def picture(self) -> Markup:
        """The chart as SVG for a page; "" if nothing was measured."""
        return line_chart(self)

    @property
    def rings(self) -> list[str]:
        """Labels of the numbered rings, in order."""
        return [one.label for one in self.marks if one.y is not None]


@dataclass(frozen=True)
class RowSeries:
    """One value per row, or None. colour: a variable of the style sheet; "" for the colour of `shade`."""

    name: str
    values: tuple[float | None, ...]
    paper: bool = False
    shade: int = 0
    colour: str = ""

    @property
    def variable(self) -> str:
        """The variable of the style sheet with its colour."""
        return self.colour or SHADES[self.shade % len(SHADES)]


@dataclass(frozen=True)
class RowChart:
    """A chart of named rows with a bar or a dot for each series; a paper's values are diamonds.

    log: whether the axis is logarithmic. unit: appended to each number.
    """

    title: str
    x_label: str
    rows: tuple[str, ...]
    series: tuple[RowSeries, ...]
    digits: int = 0
    level: float | None = None
    level_label: str = ""
    caption: str = ""
    dots: bool = False
    log: bool = False
    unit: str = ""
    width: float = WIDTH

    rings = ()

    @cached_property
    def picture(self) -> Markup:
        """The chart as SVG for a page; "" if nothing was measured."""
        return row_chart(self)

    @property
    def legend(self) -> list[tuple[str, str, bool]]:
        """(name, colour, whether from a paper) of each series; empty for a single series."""
        several = len(self.series) > 1
        return [(one.name, f"var(--{one.variable})", one.paper) for one in self.series if several]

    @property
    def is_wide(self) -> bool:
        """Whether it is wider than half the page."""
        return self.width > HALF


def picture(draw: Callable[[Figure], object], label: str, width: float, height: float) -> Markup:
    """SVG for a page, of what `draw` draws in an empty figure; sizes in pixels. label: for screen readers."""
    return Markup(_inlined(_drawn(draw, STYLE, width, height, "none"), label, width, height))


def document(draw: Callable[[Figure], object], width: float, height: float) -> str:
    """SVG as a standalone file, in matplotlib's own colours on white."""
    return _drawn(draw, {"svg.fonttype": "none", "svg.hashsalt": "specnav"}, width, height, "white")


def _drawn(
    draw: Callable[[Figure], object], style: dict[str, Any], width: float, height: float, paper: str
) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained", facecolor=paper)
        draw(figure)
        for artist in figure.findobj():
            artist.set_clip_on(artist.get_clip_path() is not None and artist.get_gid() == CLIPPED)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return written.getvalue()


def _inlined(svg: str, label: str, width: float, height: float) -> str:
    """Convert an SVG document for a page: without its style, with the page's colours, and with tooltips from ids."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    body = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.S
    )
    body = re.sub(r'<g id="tip:([^"]*)">', r"<g><title>\1</title>", body)
    body = body.replace(f' id="{CLIPPED}"', "")
    body = re.sub(r' id="[\w.]+_\d+"', "", body)
    body = re.sub(r"font-family: [^;\"]*;? ?| transform=\"rotate\(-0 [^\"]*\"", "", body)
    body = re.sub(r"(\.\d\d)\d+", r"\1", body)
    for name, colour in HEX.items():
        body = body.replace(colour, f"var(--{name})")
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return head + re.sub(r"\n\s*", "\n", body).strip()


def colours_of(families: Sequence[str]) -> dict[str, str]:
    """A variable of the style sheet for each family; families without a fixed colour take OTHERS in turn."""
    others = [name for name in dict.fromkeys(families) if name not in FAMILIES]
    taken = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(others)}
    return {name: FAMILIES.get(name) or taken[name] for name in families}


def line_chart(chart: LineChart) -> Markup:
    """Draw lines with dots, each named at its end; "" if nothing was measured."""
    lines = [one for one in chart.lines if one.points]
    if not any(not one.paper for one in lines):
        return Markup()
    colours = {name: HEX[variable] for name, variable in colours_of([one.family for one in lines]).items()}

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "y")
        for one in sorted(lines, key=lambda one: one.paper):
            _draw_line(axes, one, colours[one.family])
        ys = [y for one in lines for _, y in one.points] + ([] if chart.level is None else [chart.level])
        if min(ys) < 0.5 * max(ys):
            axes.set_ylim(bottom=min(0.0, *ys))
        if chart.level is not None:
            axes.axhline(chart.level, color=HEX["ink"], linewidth=1.0, linestyle="--")
        rings = 0
        for mark in chart.marks:
            rings += mark.y is not None
            _draw_mark(axes, mark, rings)
        if chart.x_ticks:
            axes.set_xticks(_far_enough(chart.x_ticks, chart.size[0] - 200), minor=False)
            axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(chart.x_label)
        axes.set_title(chart.y_label, loc="left", fontsize=12, color=HEX["muted"])
        _name_ends(axes, [one for one in lines if not one.computed], colours, chart.size)

    return picture(draw, chart.title, *chart.size)


def row_chart(chart: RowChart) -> Markup:
    """Draw bars with their numbers, or dots, and diamonds for a paper's values; "" if nothing was measured."""
    ours = [one for one in chart.series if not one.paper and any(value is not None for value in one.values)]
    if not ours:
        return Markup()
    height = ROW_PX * len(chart.rows) + 64 + 18 * (chart.level is not None)

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "x")
        start = float(chart.log)
        if chart.log:
            axes.set_xscale("log")
        for place, name in enumerate(chart.rows):
            there = [one for one in ours if one.values[place] is not None]
            if not there:
                axes.text(
                    0.0,
                    place,
                    " not measured",
                    va="center",
                    color=HEX["faint"],
                    transform=axes.get_yaxis_transform(),
                )
            for number, one in enumerate(there):
                value = one.values[place] or 0.0
                tip = f"tip:{name}{', ' * bool(one.name)}{one.name}: {value:.{max(chart.digits, 1)}f}{chart.unit}"
                if chart.dots:
                    axes.plot(value, place, "o", markersize=9, color=HEX[one.variable], gid=tip)
                else:
                    tall = 0.6 / len(there)
                    y = place + (number - (len(there) - 1) / 2) * tall
                    axes.barh(
                        y, max(value - start, 0.0), 0.92 * tall, left=start, color=HEX[one.variable], gid=tip
                    )
            for one in chart.series:
                if one.paper and (printed := one.values[place]) is not None:
                    tip = f"tip:{name}, {one.name or 'paper'}: {printed:g}{chart.unit}"
                    _diamond(axes, printed, place, HEX[one.variable], tip)
            if there and not chart.dots:
                words = " / ".join(f"{one.values[place]:.{chart.digits}f}{chart.unit}" for one in there)
                farthest = max(max(one.values[place] or 0.0 for one in there), start)
                axes.annotate(
                    words, (farthest, place), (6, 0), textcoords="offset points", va="center", weight="bold"
                )
        axes.set_yticks(range(len(chart.rows)), [_broken(name) for name in chart.rows], weight="bold")
        axes.set_ylim(len(chart.rows) - 0.5, -0.5)
        axes.set_xlim(left=start)
        axes.margins(x=0.12)
        if chart.log:
            axes.xaxis.set_major_formatter("{x:,.0f}")
        if chart.level is not None:
            axes.axvline(chart.level, color=HEX["uplink"], linewidth=1.5, linestyle="--")
            axes.annotate(
                f"{chart.level_label} {chart.level:g}", (chart.level, 1.0), (0, 3), xycoords=axes.get_xaxis_transform(),
                textcoords="offset points", ha="center", color=HEX["uplink"],
            )  # fmt: skip
        axes.set_xlabel(chart.x_label)

    return picture(draw, chart.title, chart.width, height)


def histogram(values: Sequence[float], label: str, variable: str) -> Markup:
    """Histogram of times in milliseconds with the median and the 95th percentile marked."""
    if not values:
        return Markup()

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "y")
        # Values that differ only by rounding are too close for bins between them.
        least, most = min(values), max(values)
        span = (least, most) if most - least > 1e-6 * max(abs(most), 1.0) else (least - 0.5, most + 0.5)
        counts, edges, _ = axes.hist(
            values, bins=min(32, 8 + len(values) // 2), range=span, color=HEX[variable], rwidth=0.9
        )
        for count, start, end, bar in zip(counts, edges, edges[1:], axes.patches, strict=False):
            bar.set_gid(f"tip:{start:.0f}–{end:.0f} ms: {count:.0f}")
        for rank, height in ((50, 1.12), (95, 1.03)):
            value = percentile(values, rank) or 0.0
            axes.axvline(value, ymax=height, color=HEX["ink"], linewidth=1.0, linestyle=":")
            axes.text(
                value,
                height,
                f" p{rank} {value:.0f} ms",
                weight="bold",
                va="bottom",
                transform=axes.get_xaxis_transform(),
            )
        axes.locator_params(axis="y", integer=True)
        axes.set_xlabel("milliseconds")

    return picture(draw, f"Histogram: {label}", HALF, 236.0)


def timeline(
    spans: Sequence[Span],
    label: str = "milliseconds since the decision began",
    title: str = "Timeline of one decision",
    until_ms: float | None = None,
) -> Markup:
    """Lanes (edge, uplink, cloud, downlink) over milliseconds; short spans keep a visible width.

    until_ms: the time to show, so that several timelines share one scale; None: up to the last span's end.
    """
    shown = [one for one in spans if one.lane in LANES and (until_ms is None or one.start_ms < until_ms)]
    if not shown:
        return Markup()
    end = until_ms or max(one.end_ms for one in shown)
    a_pixel = end / 960.0

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "x")
        for place, lane in enumerate(LANES):
            axes.barh(place, end, 0.8, color=HEX["soft"], zorder=0)
            for one in (one for one in shown if one.lane == lane):
                last, ahead = min(one.end_ms, end), one.name.endswith((AHEAD, SHADOW))
                took = f"{one.start_ms:.1f}–{one.end_ms:.1f} ms ({one.end_ms - one.start_ms:.2f} ms)"
                axes.barh(
                    place, max(last - one.start_ms, 2 * a_pixel), 0.72, left=one.start_ms,
                    color=HEX["drafted" if ahead else lane], edgecolor=HEX["panel"], linewidth=0.5,
                    gid=f"tip:{lane}: {one.name}, {took}",
                )  # fmt: skip
                if last - one.start_ms > (len(one.name) * CHAR_PX + 8) * a_pixel:
                    middle, colour = (one.start_ms + last) / 2, HEX["ink"] if ahead else "white"
                    axes.text(middle, place, one.name, ha="center", va="center", color=colour, fontsize=11)
        axes.set_yticks(range(len(LANES)), LANES, weight="bold")
        axes.set_ylim(len(LANES) - 0.5, -0.5)
        axes.set_xlim(0.0, end)
        axes.set_xlabel(label)

    return picture(draw, title, 1080.0, 190.0)


def share_bars(shares: Mapping[str, Sequence[float]], label: str) -> Markup:
    """One small bar chart per name: the shares of 0, 1, 2 …"""
    if not shares:
        return Markup()
    rows = -(-len(shares) // SHARES_A_ROW)

    def draw(figure: Figure) -> None:
        cells = list(figure.subplots(rows, SHARES_A_ROW, squeeze=False).flat)
        for cell in cells:
            cell.set_axis_off()
        for cell, (name, values) in zip(cells, shares.items(), strict=False):
            cell.set_axis_on()
            cell.grid(axis="y")
            cell.set_title(_broken(name), loc="left", fontsize=12, weight="bold")
            for place, share in enumerate(values):
                cell.bar(place, share, 0.8, color=HEX["edge"], gid=f"tip:{name}: {place}, {share:.1%}")
            cell.locator_params(axis="x", integer=True)
            cell.set_ylim(0.0, max(*values, 0.2))

    return picture(draw, label, 1024.0, 190.0 * rows)


def matrix(counts: Sequence[Sequence[int]], names: Sequence[str], label: str) -> Markup:
    """A confusion matrix: references as rows, decisions as columns; names that never occur are left out."""
    used = [n for n in range(len(names)) if any(counts[n]) or any(row[n] for row in counts)]
    if not used:
        return Markup()

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, wanted in enumerate(used):
            total = sum(counts[wanted]) or 1
            for column, said in enumerate(used):
                count = counts[wanted][said]
                tip = f"tip:reference {names[wanted]}, decided {names[said]}: {count} of {total}"
                axes.barh(row, 0.92, 0.92, left=column - 0.46, color=HEX["soft"], gid=tip)
                if count:
                    colour = HEX["ok" if wanted == said else "bad"]
                    axes.barh(
                        row,
                        0.92,
                        0.92,
                        left=column - 0.46,
                        color=colour,
                        alpha=0.25 + 0.75 * count / total,
                        gid=tip,
                    )
                    ink = HEX["ink"] if count / total < 0.5 else "white"
                    axes.text(column, row, str(count), ha="center", va="center", weight="bold", color=ink)
        axes.set_yticks(range(len(used)), [names[n] for n in used], weight="bold")
        axes.set_xticks(range(len(used)), [names[n] for n in used], rotation=38, ha="left")
        axes.tick_params(top=False, bottom=False, labeltop=True, labelbottom=False)
        axes.spines.bottom.set_visible(False)
        axes.set_ylim(len(used) - 0.5, -0.5)

    return picture(draw, label, HALF, 84.0 + 30.0 * len(used))


def apart(ys: Sequence[float], bottom: float, top: float, step: float) -> list[float]:
    """Sorted heights, moved so that neighbours are at least `step` apart and none is above `top`."""
    placed: list[float] = []
    for y in ys:
        placed.append(max(y, placed[-1] + step if placed else bottom))
    highest = top
    for place in reversed(range(len(placed))):
        placed[place] = min(placed[place], highest)
        highest = placed[place] - step
    return placed


def _axes(figure: Figure, grid: str) -> Axes:
    axes = figure.add_subplot()
    axes.grid(axis=grid)  # type: ignore[arg-type]
    axes.set_facecolor("none")
    return axes


def _draw_line(axes: Axes, one: ChartLine, colour: str) -> None:
    xs, ys = zip(*one.points, strict=True)
    if one.joined:
        dashed = one.paper or one.computed or one.family == "formula"
        axes.plot(xs, ys, color=colour, linestyle="--" if dashed else "-")
    for (x, y), high in zip(one.points, one.high or ys, strict=True):
        if high > y:
            axes.plot((x, x), (y, high), color=colour)
        tip = f"tip:{one.name}, {x:g}: {y:.2f}"
        if one.paper:
            _diamond(axes, x, y, colour, tip)
        elif one.dotted and not one.computed:
            axes.plot(x, y, "o", color=colour, markersize=7, gid=tip)


def _diamond(axes: Axes, x: float, y: float, colour: str, tip: str) -> None:
    axes.plot(
        x,
        y,
        "D",
        markersize=8,
        markerfacecolor=HEX["panel"],
        markeredgecolor=colour,
        markeredgewidth=2,
        gid=tip,
        zorder=3,
    )


def _draw_mark(axes: Axes, mark: Mark, number: int) -> None:
    if mark.y is None:
        axes.axvline(mark.x, color=HEX["uplink"], linewidth=1.0, linestyle=":")
        beyond = mark.x > sum(axes.get_xlim()) / 2
        axes.annotate(
            mark.label, (mark.x, 1.0), (-6 if beyond else 6, 0), xycoords=axes.get_xaxis_transform(),
            textcoords="offset points", ha="right" if beyond else "left", va="top", color=HEX["uplink"],
        )  # fmt: skip
        return
    axes.plot(
        mark.x, mark.y, "o", markersize=17, markerfacecolor=HEX["panel"], markeredgecolor=HEX["ink"],
        gid=f"tip:{mark.label}", zorder=4,
    )  # fmt: skip
    axes.text(mark.x, mark.y, str(number), ha="center", va="center", weight="bold", zorder=5)


def _name_ends(
    axes: Axes, lines: Sequence[ChartLine], colours: Mapping[str, str], size: tuple[float, float]
) -> None:
    """Write names right of the plot, each as close to its line's end as possible."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    step = (high - low) * LABEL_PX / (size[1] - 90)
    ends = sorted((max(one.points)[1], one.name, colours[one.family]) for one in lines)
    for y, (_, name, colour) in zip(apart([y for y, _, _ in ends], low, high, step), ends, strict=True):
        axes.annotate(
            name, (1.0, y), (12, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
            color=colour, weight="bold", annotation_clip=False,
        )  # fmt: skip


def _broken(name: str) -> str:
    """Break a method's name before axes into lines of at most LONGEST_NAME letters."""
    first, *axes = name.split("+")
    lines = [first]
    for axis in axes:
        if len(lines[-1]) + 1 + len(axis) <= LONGEST_NAME:
            lines[-1] += f"+{axis}"
        else:
            lines.append(f"+{axis}")
    return "\n".join(lines)


def _far_enough(values: Sequence[float], pixels: float) -> list[float]:
    """The values whose labels do not overlap."""
    a_label = (max(values) - min(values)) * 22 / pixels
    kept: list[float] = []
    for value in sorted(values):
        if not kept or value - kept[-1] >= a_label:
            kept.append(value)
    return kept

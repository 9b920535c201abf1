"""The charts of a drill's report: stop latencies against their bounds, and what grows over time. Inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specnav.drill.results import FaultRow, LeakCheck
from specnav.report.drawing import (
    Scale,
    axis_bottom,
    axis_left,
    circle,
    line,
    rect,
    svg,
    text,
    ticks,
    trail,
)

WIDTH, RIGHT, TOP, BOTTOM = 1080.0, 20.0, 10.0, 44.0
ROW, CHAR_PX = 22.0, 6.6
LEAST_MS = 1.0
DECADES = (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)
COLOURS = ("var(--edge)", "var(--cloud)", "var(--downlink)", "var(--uplink)", "var(--policy)")


def stop_chart(rows: Sequence[FaultRow], reasons: dict[str, list[float]]) -> str:
    """A row a fault, milliseconds on a logarithmic axis: every stop as a dot, its bound as a bar's end.

    reasons: of the faults that found the robot standing, when the reason was published; drawn hollow.
    """
    shown = [row for row in rows if row.stop_ms or reasons.get(row.fault)]
    if not shown:
        return ""
    left = 16 + CHAR_PX * max(len(row.fault) for row in shown)
    most = max(max([*row.stop_ms, *reasons.get(row.fault, []), row.bound_ms or 1.0]) for row in shown)
    high = next((d for d in DECADES if d >= most), DECADES[-1])
    across = Scale(0.0, math.log10(high), left, WIDTH - RIGHT)
    bottom = TOP + ROW * len(shown)
    body = []
    for value in (d for d in DECADES if d <= high):
        x = across(math.log10(value))
        body.append(line(x, TOP, x, bottom, "grid"))
        body.append(text(x, bottom + 17, f"{value:g}", "middle"))
    body.append(text(WIDTH - RIGHT, bottom + 36, "milliseconds from the fault", "end"))
    for place, row in enumerate(shown):
        y = TOP + ROW * (place + 0.5)
        body.append(text(left - 8, y + 4, row.fault, "end", "" if row.passed == row.runs else "strong"))
        if row.bound_ms:
            end = across(_log(row.bound_ms))
            body.append(
                rect(left, y - 7, end - left, 14, "var(--ok-soft)", f"bound {row.bound_ms:.0f} ms", 2)
            )
            body.append(line(end, y - 9, end, y + 9, "axis", "stroke:var(--bad);stroke-width:2"))
        for value in reasons.get(row.fault, []):
            style = "fill:none;stroke:var(--muted);stroke-width:1.2"
            body.append(
                circle(across(_log(value)), y, 3.4, style, f"{row.fault}: reason after {value:.0f} ms")
            )
        for value in row.stop_ms:
            late = row.bound_ms is not None and value > row.bound_ms
            style = f"fill:{'var(--bad)' if late else 'var(--edge)'};fill-opacity:.55"
            body.append(circle(across(_log(value)), y, 3.8, style, f"{row.fault}: zero after {value:.0f} ms"))
    return svg(WIDTH, bottom + BOTTOM, "".join(body), "Stop latencies against their bounds")


def growth_chart(check: LeakCheck, quantity: str, label: str) -> str:
    """One quantity ("rss_mb", "fds" or "threads") of every process over time."""
    names = [name for name, samples in check.samples.items() if samples]
    if not names:
        return ""
    values = {name: [(s.t_s, float(getattr(s, quantity))) for s in check.samples[name]] for name in names}
    return _lines(values, label)


def line_over_time(points: Sequence[tuple[float, float]], name: str, label: str) -> str:
    """One line, or dots where there are few."""
    return _lines({name: list(points)}, label) if points else ""


def _lines(values: dict[str, list[tuple[float, float]]], label: str) -> str:
    width, height, left, top = 520.0, 240.0, 52.0, 12.0
    right = 16 + CHAR_PX * max(len(name) for name in values)
    end = max(t for points in values.values() for t, _ in points) or 1.0
    high = max(v for points in values.values() for _, v in points) * 1.08 or 1.0
    unit, scale = ("min", 60.0) if end > 300 else ("s", 1.0)
    across = Scale(0.0, end / scale, left, width - right)
    up = Scale(0.0, high, height - BOTTOM, top)
    body = [axis_left(up, left, width - right, ticks(0, high, 5))]
    taken: list[float] = []
    for place, (name, points) in enumerate(values.items()):
        colour = COLOURS[place % len(COLOURS)]
        drawn = [(across(t / scale), up(v)) for t, v in points]
        body.append(trail(drawn, f"stroke:{colour};stroke-width:1.6"))
        y = drawn[-1][1] + 4
        while any(abs(y - other) < 13 for other in taken):
            y -= 13
        taken.append(y)
        body.append(text(width - right + 6, y, name, "start", "strong", f"fill:{colour}"))
    body.append(
        axis_bottom(
            across, height - BOTTOM, ticks(0, end / scale, 6), f"{label}; {unit} since the start", height - 6
        )
    )
    return svg(width, height, "".join(body), label)


def _log(milliseconds: float) -> float:
    return math.log10(max(milliseconds, LEAST_MS))

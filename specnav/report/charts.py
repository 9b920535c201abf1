"""The charts of the report: decision times, drafted and accepted tokens, one decision's timeline, the latency study.

Each function takes plain records and returns inline SVG (or "" when there is nothing to show).
"""

from __future__ import annotations

from collections.abc import Sequence

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
from specnav.results.demo import LatencyRow, percentile
from specnav.results.trace import Decision, EpisodeTrace, Span

LANES = ("edge", "uplink", "cloud", "downlink")
NARROW_LANES_PX, WIDE_LANE_PX = 22, 34
LABEL_CHAR_PX = 6.9
AHEAD = "ahead"
SHADOW = "shadow"
"""Spans whose name ends so are work that nobody waited for yet; they are drawn pale."""


def histogram(values: Sequence[float], label: str, colour: str) -> str:
    """Histogram of times in milliseconds with the median and the 95th percentile marked."""
    if not values:
        return ""
    width, height, left, right, top, bottom = 520.0, 236.0, 44.0, 12.0, 34.0, 46.0
    marks = ticks(min(values), max(values) * 1.02, 32)
    step = marks[1] - marks[0] if len(marks) > 1 else max(values) or 1.0
    low = int(min(values) // step) * step
    bins = int(max(values) // step) - int(low // step) + 1
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) // step), bins - 1)] += 1
    across = Scale(low, low + bins * step, left, width - right)
    up = Scale(0, max(counts) * 1.05, height - bottom, top)
    body = [axis_left(up, left, width - right, [v for v in ticks(0, max(counts), 4) if v == int(v)])]
    for place, count in enumerate(counts):
        if count:
            start = low + place * step
            x = across(start)
            body.append(
                rect(
                    x + 1,
                    up(count),
                    across(start + step) - x - 2,
                    up(0) - up(count),
                    colour,
                    f"{start:g}–{start + step:g} ms: {count}",
                )
            )
    body.append(
        axis_bottom(across, height - bottom, ticks(low, low + bins * step, 7), "milliseconds", height - 8)
    )
    middle, high = percentile(values, 50) or 0.0, percentile(values, 95) or 0.0
    for value, name, row in ((middle, "p50", 12.0), (high, "p95", 27.0)):
        x = across(value)
        flip = x > width - 96
        body.append(line(x, row + 3, x, height - bottom, "axis", "stroke-dasharray:3 3;stroke:var(--ink)"))
        body.append(
            text(x + (-4 if flip else 4), row, f"{name} {value:.0f} ms", "end" if flip else "start", "strong")
        )
    return svg(width, height, "".join(body), f"Histogram: {label}")


def tokens_per_decision(traces: Sequence[EpisodeTrace]) -> str:
    """Drafted tokens (light) and accepted ones (solid) of every decision, episodes separated."""
    groups = [[d for d in trace.decisions if sum(d.drafted)] for trace in traces]
    total = sum(len(group) for group in groups)
    if not total:
        return ""
    width, height, left, right, top, bottom = 1080.0, 220.0, 44.0, 8.0, 12.0, 46.0
    gap = 1.2
    slots = total + gap * max(len([g for g in groups if g]) - 1, 0)
    slot = min((width - left - right) / slots, 64.0)
    most = max(sum(d.drafted) for group in groups for d in group)
    up = Scale(0, most * 1.05, height - bottom, top)
    body = [axis_left(up, left, width - right, ticks(0, most, 4))]
    x = left + 4
    for trace, group in zip(traces, groups, strict=True):
        if not group:
            continue
        begin = x
        for decision in group:
            drafted, accepted = sum(decision.drafted), sum(decision.accepted)
            title = f"decision {decision.index + 1}: {accepted} of {drafted} drafts, {len(decision.drafted)} rounds"
            bar = slot - min(3.0, 0.2 * slot)
            body.append(rect(x, up(drafted), bar, up(0) - up(drafted), "var(--drafted)", title))
            body.append(rect(x, up(accepted), bar, up(0) - up(accepted), "var(--edge)", title))
            x += slot
        name = f"episode {trace.result.index + 1}"
        if x - begin > len(name) * LABEL_CHAR_PX:
            body.append(text((begin + x - 3) / 2, height - bottom + 18, name, "middle"))
        elif x - begin > 16:
            body.append(
                text((begin + x - 3) / 2, height - bottom + 18, str(trace.result.index + 1), "middle")
            )
        x += slot * gap
    body.append(line(left, height - bottom, width - right, height - bottom))
    body.append(text(left, height - 8, "draft tokens a decision, one bar each"))
    return svg(width, height, "".join(body), "Drafted and accepted tokens per decision")


def typical_decision(traces: Sequence[EpisodeTrace]) -> tuple[EpisodeTrace, Decision] | None:
    """The decision with a timeline whose time lies nearest the median."""
    known = [(t, d) for t in traces for d in t.decisions if d.timeline and d.decision_ms is not None]
    if not known:
        return None
    middle = percentile([d.decision_ms or 0.0 for _, d in known], 50) or 0.0
    return min(known, key=lambda pair: abs((pair[1].decision_ms or 0.0) - middle))


def timeline(
    spans: Sequence[Span],
    label: str = "milliseconds since the decision began",
    title: str = "Timeline of one decision",
    until_ms: float | None = None,
) -> str:
    """Lanes (edge, uplink, cloud, downlink) over milliseconds; narrow bars keep a visible width.

    until_ms: show so much, whatever the spans' length, so that several pictures share one scale.
    """
    if until_ms is not None:
        spans = [
            Span(span.lane, span.name, span.start_ms, min(span.end_ms, until_ms))
            for span in spans
            if span.start_ms < until_ms
        ]
    if not spans:
        return ""
    width, left, right, top, bottom = 1080.0, 84.0, 16.0, 10.0, 44.0
    tops, now = {}, top
    for lane in LANES:
        tops[lane] = now
        now += (WIDE_LANE_PX if lane in ("edge", "cloud") else NARROW_LANES_PX) + 10
    height = now + bottom - 10
    end = until_ms or max(span.end_ms for span in spans)
    across = Scale(0, end * 1.01, left, width - right)
    body = []
    for lane in LANES:
        tall = WIDE_LANE_PX if lane in ("edge", "cloud") else NARROW_LANES_PX
        body.append(rect(left, tops[lane], width - left - right, tall, "var(--soft)", radius=4))
        body.append(text(left - 10, tops[lane] + tall / 2 + 4, lane, "end", "strong"))
    for span in spans:
        if span.lane not in tops:
            continue
        tall = WIDE_LANE_PX if span.lane in ("edge", "cloud") else NARROW_LANES_PX
        x, wide = across(span.start_ms), max(across(span.end_ms) - across(span.start_ms) - 0.8, 2.0)
        took = f"{span.start_ms:.1f}–{span.end_ms:.1f} ms ({span.end_ms - span.start_ms:.2f} ms)"
        tip = f"{span.lane}: {span.name}, {took}"
        ahead = span.name.endswith((AHEAD, SHADOW))
        colour = "var(--drafted)" if ahead else f"var(--{span.lane})"
        body.append(rect(x, tops[span.lane] + 2, wide, tall - 4, colour, tip, 3))
        if wide > len(span.name) * LABEL_CHAR_PX + 8:
            middle = tops[span.lane] + tall / 2 + 4
            style = f"fill:{'var(--ink)' if ahead else '#fff'};font-size:11.5px;pointer-events:none"
            body.append(text(x + wide / 2, middle, span.name, "middle", style=style))
    body.append(axis_bottom(across, now - 4, ticks(0, end, 10), label, height - 4))
    return svg(width, height, "".join(body), title)


def latency_plot(rows: Sequence[LatencyRow]) -> str:
    """Camera-to-action p50 (dot) and p95 (whisker) against the emulated round trip, a line per method."""
    if not rows:
        return ""
    width, height, left, right, top, bottom = 520.0, 280.0, 58.0, 40.0, 14.0, 46.0
    methods = list(dict.fromkeys(row.method for row in rows))
    colours = ("var(--uplink)", "var(--edge)", "var(--cloud)", "var(--downlink)", "var(--bad)")
    most = max(row.time_to_action_ms_p95 for row in rows)
    widest = max(row.rtt_ms for row in rows) or 1.0
    across = Scale(-0.04 * widest, widest * 1.04, left, width - right)
    up = Scale(0, most * 1.06, height - bottom, top)
    body = [axis_left(up, left, width - right, ticks(0, most, 5))]
    for place, method in enumerate(methods):
        colour = colours[place % len(colours)]
        shift = (place - (len(methods) - 1) / 2) * 7
        mine = sorted((row for row in rows if row.method == method), key=lambda row: row.rtt_ms)
        points = [(across(row.rtt_ms) + shift, up(row.time_to_action_ms_p50)) for row in mine]
        body.append(trail(points, f"stroke:{colour};stroke-width:2"))
        for row, (x, y) in zip(mine, points, strict=True):
            p50, p95 = row.time_to_action_ms_p50, row.time_to_action_ms_p95
            title = f"{method}, RTT {row.rtt_ms:g} ms: p50 {p50:.0f} ms, p95 {p95:.0f} ms"
            body.append(line(x, y, x, up(p95), "axis", f"stroke:{colour};stroke-width:2"))
            body.append(circle(x, y, 4.5, f"fill:{colour}", title))
        body.append(text(points[-1][0] + 9, points[-1][1] + 4, method, "start", "strong"))
    body.append(
        axis_bottom(
            across,
            height - bottom,
            sorted({row.rtt_ms for row in rows}),
            "emulated round trip, ms",
            height - 6,
        )
    )
    return svg(width, height, "".join(body), "Camera-to-action time against round-trip time")

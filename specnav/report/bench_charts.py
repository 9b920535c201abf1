"""The charts of a bench report: speed-ups, bytes a round, accepted lengths.

Each function takes plain records and returns inline SVG (or "" when there is nothing to show).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from specnav.bench.core.records import AnswerRecord, BenchRow
from specnav.report.drawing import Scale, axis_left, line, outline, rect, svg, text, ticks

WIDTH, RIGHT = 520.0, 64.0
LABEL_CHAR_PX, VALUE_WIDTH = 7.4, 40.0
HALO = "paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round"
BAR, STEP, NAME_STEP = 18.0, 30.0, 14.0
NAME_CHARS, MOST_LABELS = 22, 12
CELL_WIDTH, CELL_HEIGHT, CELLS_A_ROW, CELL_INDENT = 256.0, 150.0, 4, 40.0


def name_lines(name: str) -> list[str]:
    """A method's name in lines that fit beside a bar; it breaks before an axis."""
    first, *axes = name.split("+")
    lines = [first]
    for axis in axes:
        if len(lines[-1]) + 1 + len(axis) <= NAME_CHARS:
            lines[-1] += f"+{axis}"
        else:
            lines.append(f"+{axis}")
    return lines


def label_width(rows: Sequence[BenchRow]) -> float:
    """Room for the longest line of a method's name."""
    return 22 + LABEL_CHAR_PX * max((len(part) for row in rows for part in name_lines(row.method)), default=0)


def row_tops(rows: Sequence[BenchRow], top: float) -> list[float]:
    """Where each row's bar begins, and where the last row ends."""
    heights = [STEP + NAME_STEP * (len(name_lines(row.method)) - 1) for row in rows]
    return [top, *(top + reached for reached in accumulate(heights))]


def name_text(x: float, y: float, name: str, anchor: str) -> str:
    """A method's name, its first line at y."""
    return "".join(
        text(x, y + NAME_STEP * place, part, anchor, "strong") for place, part in enumerate(name_lines(name))
    )


def speedup_bars(rows: Sequence[BenchRow], papers: Mapping[str, float]) -> str:
    """Tokens a second over those of `ar`, a bar a method; papers: what the paper printed (a diamond)."""
    shown = [row for row in rows if row.speedup_vs_ar is not None]
    if not shown:
        return ""
    top, left = 14.0, label_width(shown)
    *tops, bottom = row_tops(shown, top)
    most = max([row.speedup_vs_ar or 0.0 for row in shown] + list(papers.values()) + [1.0])
    across = Scale(0, most * 1.02, left, WIDTH - RIGHT)
    body = []
    for value in ticks(0, most, 5):
        body.append(line(across(value), top - 6, across(value), bottom, "grid"))
        body.append(text(across(value), bottom + 16, f"{value:g}", "middle"))
    body.append(line(across(1), top - 8, across(1), bottom, "axis", "stroke:var(--ink);stroke-dasharray:4 3"))
    for y, row in zip(tops, shown, strict=True):
        value = row.speedup_vs_ar or 0.0
        colour = "var(--faint)" if row.uplink_bytes_per_round is None else "var(--edge)"
        body.append(name_text(left - 8, y + BAR - 4, row.method, "end"))
        body.append(rect(left, y, across(value) - left, BAR, colour, f"{row.method}: {value:.2f} times ar"))
        start = across(value) + 6
        if row.method in papers:
            paper = across(papers[row.method])
            body.append(_diamond(paper, y + BAR / 2, f"paper: {papers[row.method]:g}"))
            if abs(paper - start - VALUE_WIDTH / 2) < VALUE_WIDTH / 2 + 9:  # the diamond stands in the way
                start = paper + 13
        body.append(text(start, y + BAR - 4, f"{value:.2f}×", "start", "strong", HALO))
    body.append(text(WIDTH - RIGHT, bottom + 34, "tokens a second, over cloud AR", "end"))
    return svg(WIDTH, bottom + 40, "".join(body), "Speed-up over ar")


def bytes_bars(rows: Sequence[BenchRow]) -> str:
    """Mean bytes up and down a round on a logarithmic scale, two bars a method."""
    shown = [row for row in rows if row.uplink_bytes_per_round is not None]
    if not shown:
        return ""
    top, left = 14.0, label_width(shown)
    *tops, bottom = row_tops(shown, top)
    pairs = [(row.uplink_bytes_per_round or 0.0, row.downlink_bytes_per_round or 0.0) for row in shown]
    decades = max(2, math.ceil(math.log10(max(max(pair) for pair in pairs) + 1)))
    across = Scale(0, decades, left, WIDTH - RIGHT)
    body = []
    for power in range(decades + 1):
        body.append(line(across(power), top - 6, across(power), bottom, "grid"))
        body.append(text(across(power), bottom + 16, f"{10**power:,}".replace(",", " "), "middle"))
    for y, row, pair in zip(tops, shown, pairs, strict=True):
        body.append(name_text(left - 8, y + BAR - 4, row.method, "end"))
        for value, name, offset in ((pair[0], "uplink", 0.0), (pair[1], "downlink", BAR / 2 + 1)):
            if value >= 1:
                end = across(math.log10(value))
                tip = f"{row.method}, {name}: {value:.1f} bytes a round"
                body.append(rect(left, y + offset, end - left, BAR / 2, f"var(--{name})", tip))
        farther = across(math.log10(max(*pair, 1.0)))
        body.append(text(farther + 6, y + BAR - 4, f"{pair[0]:.0f} / {pair[1]:.0f}", "start", "strong"))
    body.append(text(WIDTH - RIGHT, bottom + 34, "bytes a round, up / down", "end"))
    return svg(WIDTH, bottom + 40, "".join(body), "Bytes a round")


def accepted_lengths(answers: Mapping[str, Sequence[AnswerRecord]]) -> str:
    """Share of rounds by how many draft tokens were accepted, a small histogram a drafting method."""
    counted = {}
    for method, records in answers.items():
        lengths = [one.accepted for record in records for one in record.rounds if one.drafted]
        if lengths:
            counted[method] = [lengths.count(n) / len(lengths) for n in range(max(lengths) + 1)]
    if not counted:
        return ""
    columns = min(CELLS_A_ROW, len(counted))
    under = NAME_STEP * (max(len(name_lines(method)) for method in counted) - 1)
    body = []
    for place, (method, shares) in enumerate(counted.items()):
        x = CELL_WIDTH * (place % columns)
        y = (CELL_HEIGHT + under) * (place // columns)
        body.append(name_text(x + CELL_INDENT, y + 14, method, "start"))
        body.append(_accepted_cell(x, y + under, method, shares))
    height = (CELL_HEIGHT + under) * math.ceil(len(counted) / columns)
    return svg(CELL_WIDTH * CELLS_A_ROW, height, "".join(body), "Accepted draft tokens a round")


def _accepted_cell(x: float, y: float, method: str, shares: Sequence[float]) -> str:
    left, right, top, bottom = x + CELL_INDENT, x + CELL_WIDTH - 16, y + 26, y + CELL_HEIGHT - 34
    up = Scale(0, max([*shares, 0.2]), bottom, top)
    body = [axis_left(up, left, right, ticks(0, max([*shares, 0.2]), 3))]
    slot = (right - left) / len(shares)
    every = math.ceil(len(shares) / MOST_LABELS)
    for count, share in enumerate(shares):
        place = left + slot * count
        tip = f"{method}: {count} accepted in {100 * share:.1f} % of rounds"
        body.append(rect(place + 2, up(share), max(slot - 4, 1), bottom - up(share), "var(--edge)", tip))
        if count % every == 0:
            body.append(text(place + slot / 2, bottom + 15, str(count), "middle"))
    body.append(line(left, bottom, right, bottom))
    return "".join(body)


def _diamond(x: float, y: float, title: str) -> str:
    points = [(x - 7, y), (x, y - 8), (x + 7, y), (x, y + 8)]
    return outline(points, "fill:var(--uplink);stroke:var(--panel);stroke-width:1.5", title)

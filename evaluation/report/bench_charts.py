"""The charts of a bench report: speed-ups, bytes a round, accepted lengths.

Each function takes plain records and returns inline SVG (or "" when there is nothing to show).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from evaluation.bench.records import AnswerRecord, BenchRow
from evaluation.report.drawing import Scale, axis_left, line, outline, rect, svg, text, ticks

WIDTH, RIGHT = 520.0, 64.0
LABEL_CHAR_PX, VALUE_WIDTH = 7.4, 40.0
HALO = "paint-order:stroke;stroke:var(--panel);stroke-width:4px;stroke-linejoin:round"
BAR, STEP = 18.0, 30.0
CELL_WIDTH, CELL_HEIGHT, CELLS_A_ROW = 256.0, 150.0, 4


def label_width(rows: Sequence[BenchRow]) -> float:
    """Room for the longest method name."""
    return 22 + LABEL_CHAR_PX * max((len(row.method) for row in rows), default=0)


def speedup_bars(rows: Sequence[BenchRow], papers: Mapping[str, float]) -> str:
    """Tokens a second over those of `ar`, a bar a method; papers: what the paper printed (a diamond)."""
    shown = [row for row in rows if row.speedup_vs_ar is not None]
    if not shown:
        return ""
    top, left = 14.0, label_width(shown)
    bottom = top + STEP * len(shown)
    most = max([row.speedup_vs_ar or 0.0 for row in shown] + list(papers.values()) + [1.0])
    across = Scale(0, most * 1.02, left, WIDTH - RIGHT)
    body = []
    for value in ticks(0, most, 5):
        body.append(line(across(value), top - 6, across(value), bottom, "grid"))
        body.append(text(across(value), bottom + 16, f"{value:g}", "middle"))
    body.append(line(across(1), top - 8, across(1), bottom, "axis", "stroke:var(--ink);stroke-dasharray:4 3"))
    for place, row in enumerate(shown):
        y = top + STEP * place
        value = row.speedup_vs_ar or 0.0
        colour = "var(--faint)" if row.uplink_bytes_per_round is None else "var(--edge)"
        body.append(text(left - 8, y + BAR - 4, row.method, "end", "strong"))
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
    bottom = top + STEP * len(shown)
    pairs = [(row.uplink_bytes_per_round or 0.0, row.downlink_bytes_per_round or 0.0) for row in shown]
    decades = max(2, math.ceil(math.log10(max(max(pair) for pair in pairs) + 1)))
    across = Scale(0, decades, left, WIDTH - RIGHT)
    body = []
    for power in range(decades + 1):
        body.append(line(across(power), top - 6, across(power), bottom, "grid"))
        body.append(text(across(power), bottom + 16, f"{10**power:,}".replace(",", " "), "middle"))
    for place, (row, pair) in enumerate(zip(shown, pairs, strict=True)):
        y = top + STEP * place
        body.append(text(left - 8, y + BAR - 4, row.method, "end", "strong"))
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
    body = []
    for place, (method, shares) in enumerate(counted.items()):
        x = CELL_WIDTH * (place % columns)
        y = CELL_HEIGHT * (place // columns)
        body.append(_accepted_cell(x, y, method, shares))
    height = CELL_HEIGHT * math.ceil(len(counted) / columns)
    return svg(CELL_WIDTH * CELLS_A_ROW, height, "".join(body), "Accepted draft tokens a round")


def _accepted_cell(x: float, y: float, method: str, shares: Sequence[float]) -> str:
    left, right, top, bottom = x + 40, x + CELL_WIDTH - 16, y + 26, y + CELL_HEIGHT - 34
    up = Scale(0, max([*shares, 0.2]), bottom, top)
    body = [text(left, y + 14, method, "start", "strong")]
    body.append(axis_left(up, left, right, ticks(0, max([*shares, 0.2]), 3)))
    slot = (right - left) / len(shares)
    for count, share in enumerate(shares):
        place = left + slot * count
        tip = f"{method}: {count} accepted in {100 * share:.1f} % of rounds"
        body.append(rect(place + 2, up(share), slot - 4, bottom - up(share), "var(--edge)", tip))
        body.append(text(place + slot / 2, bottom + 15, str(count), "middle"))
    body.append(line(left, bottom, right, bottom))
    return "".join(body)


def _diamond(x: float, y: float, title: str) -> str:
    points = [(x - 7, y), (x, y - 8), (x + 7, y), (x, y + 8)]
    return outline(points, "fill:var(--uplink);stroke:var(--panel);stroke-width:1.5", title)

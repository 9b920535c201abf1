"""The charts of a replay's report: confusion matrix and agreement. Plain records in, inline SVG out."""

from __future__ import annotations

from collections.abc import Sequence

from specnav.bags.records import ReplayRow
from specnav.report.drawing import Scale, line, rect, svg, text, ticks

WIDTH = 520.0
LEFT, TOP, RIGHT, BOTTOM = 124.0, 74.0, 26.0, 8.0
BAR, STEP, VALUE_WIDTH = 18.0, 30.0, 96.0


def confusion_matrix(table: Sequence[Sequence[int]], actions: Sequence[str]) -> str:
    """Counts, the reference down and the decision across; actions that nobody named are left out."""
    used = [n for n in range(len(actions)) if any(table[n]) or any(row[n] for row in table)]
    if not used:
        return ""
    cell = min((WIDTH - LEFT - RIGHT) / len(used), 44.0)
    high = min(cell, 30.0)
    body = [text(LEFT - 8, TOP - 8, "reference ↓  decided →", "end", style="font-size:11px")]
    for column, action in enumerate(used):
        x = LEFT + cell * (column + 0.5)
        turned = f'<g transform="rotate(-38 {x:.1f} {TOP - 8:.1f})">'
        body.append(turned + text(x, TOP - 8, actions[action], "start") + "</g>")
    for row, wanted in enumerate(used):
        total = sum(table[wanted])
        y = TOP + high * row
        body.append(text(LEFT - 8, y + high / 2 + 4, actions[wanted], "end", "strong"))
        for column, said in enumerate(used):
            count = table[wanted][said]
            x = LEFT + cell * column
            tip = f"reference {actions[wanted]}, decided {actions[said]}: {count} of {total}"
            body.append(rect(x + 1, y + 1, cell - 2, high - 2, "var(--soft)", tip, 3))
            if count:
                colour = "var(--ok)" if wanted == said else "var(--bad)"
                opacity = f'fill-opacity="{0.25 + 0.75 * count / total:.2f}"'
                body.append(rect(x + 1, y + 1, cell - 2, high - 2, colour, tip, 3, opacity))
                style = (
                    "pointer-events:none;fill:var(--ink)"
                    if count / total < 0.5
                    else "pointer-events:none;fill:#fff"
                )
                body.append(text(x + cell / 2, y + high / 2 + 4, str(count), "middle", "strong", style))
    return svg(WIDTH, TOP + high * len(used) + BOTTOM, "".join(body), "Confusion matrix of actions")


def agreement_bars(rows: Sequence[ReplayRow]) -> str:
    """Share of scored decisions that agree with the reference, a bar a method."""
    scored = [row for row in rows if row.agreement is not None]
    if not scored:
        return ""
    left = 22 + 7.4 * max(len(row.method) for row in scored)
    top = 14.0
    bottom = top + STEP * len(scored)
    across = Scale(0, 100, left, WIDTH - VALUE_WIDTH)
    body = []
    for value in ticks(0, 100, 5):
        body.append(line(across(value), top - 6, across(value), bottom, "grid"))
        body.append(text(across(value), bottom + 16, f"{value:g}", "middle"))
    for place, row in enumerate(scored):
        y, value = top + STEP * place, 100 * (row.agreement or 0.0)
        body.append(text(left - 8, y + BAR - 4, row.method, "end", "strong"))
        tip = f"{row.method}: {row.agreed} of {row.scored}"
        body.append(rect(left, y, across(value) - left, BAR, "var(--edge)", tip))
        body.append(text(across(value) + 6, y + BAR - 4, f"{value:.1f} % of {row.scored}", "start", "strong"))
    body.append(text(WIDTH - VALUE_WIDTH, bottom + 34, "actions that agree, %", "end"))
    return svg(WIDTH, bottom + 40, "".join(body), "Agreement of actions")

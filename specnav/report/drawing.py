"""Small pieces of inline SVG: escaping, numbers, scales and axes. Colours are the style sheet's variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


def number(value: float) -> str:
    """A coordinate with at most two decimals and no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


@dataclass(frozen=True)
class Scale:
    """A straight-line map from data [low, high] to pixels [start, end]."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixels of a data value."""
        extent = self.high - self.low or 1.0
        return self.start + (value - self.low) / extent * (self.end - self.start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round tick values within [low, high]: steps of 1, 2 or 5 times a power of ten."""
    extent = max(high - low, 1e-9)
    raw = extent / max(about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor((high - first * step) / step + 1e-9)
    return [round((first + index) * step, 10) for index in range(count + 1)]


def text(x: float, y: float, content: str, anchor: str = "start", kind: str = "", style: str = "") -> str:
    """A text element; `kind` is a class of the style sheet."""
    extra = (f' class="{kind}"' if kind else "") + (f' style="{style}"' if style else "")
    return f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{extra}>{escape(content)}</text>'


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    title: str = "",
    radius: float = 2.0,
    extra: str = "",
) -> str:
    """A filled rectangle with an optional tooltip."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0))}" height="{number(max(height, 0))}" '
        f'rx="{number(radius)}" style="fill:{fill}" {extra}>{inner}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "axis", style: str = "") -> str:
    """A straight line of a style-sheet class."""
    extra = f' style="{style}"' if style else ""
    return f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" class="{kind}"{extra}/>'


def circle(x: float, y: float, radius: float, style: str, title: str = "") -> str:
    """A circle with an optional tooltip."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" style="{style}">{inner}</circle>'


def trail(points: Sequence[tuple[float, float]], style: str) -> str:
    """An open line through points in pixels."""
    joined = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    return f'<polyline points="{joined}" style="fill:none;{style}"/>'


def outline(points: Sequence[tuple[float, float]], style: str, title: str = "") -> str:
    """A closed, filled shape through points in pixels, with an optional tooltip."""
    joined = " ".join(f"{number(x)},{number(y)}" for x, y in points)
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<polygon points="{joined}" style="{style}">{inner}</polygon>'


def axis_bottom(scale: Scale, y: float, values: Sequence[float], label: str, label_y: float) -> str:
    """Horizontal axis with tick labels below it and a caption at the right end."""
    parts = [line(scale.start, y, scale.end, y)]
    for value in values:
        parts.append(line(scale(value), y, scale(value), y + 4))
        parts.append(text(scale(value), y + 17, f"{value:g}", "middle"))
    parts.append(text(scale.end, label_y, label, "end"))
    return "".join(parts)


def axis_left(scale: Scale, x: float, right: float, values: Sequence[float]) -> str:
    """Vertical axis: grid lines across to `right` and tick labels left of `x`."""
    parts = []
    for value in values:
        parts.append(line(x, scale(value), right, scale(value), "grid"))
        parts.append(text(x - 7, scale(value) + 4, f"{value:g}", "end"))
    return "".join(parts)


def svg(width: float, height: float, body: str, label: str) -> str:
    """A responsive picture; `label` is what a screen reader says."""
    return f'<svg viewBox="0 0 {number(width)} {number(height)}" role="img" aria-label="{escape(label)}">{body}</svg>'

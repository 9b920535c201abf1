# SPDX-License-Identifier: Apache-2.0
"""The map of an episode: walls, objects, the driven path, start, decisions, stop, and the goal region."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from specnav.report.charts import CLIPPED, HEX, picture
from specnav.results.trace import EpisodeTrace, PathPoint, Rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUCCESS_RADIUS_M = 0.8
LABEL_CHAR_PX, LABEL_HEIGHT_PX = 6.3, 14.0
MAP_WIDTH_PX, MAP_HEIGHT_PX, MARGIN_PX = 520.0, 420.0, 10.0
SQUARE = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
ROUND = tuple((0.5 * math.cos(math.tau * n / 24), 0.5 * math.sin(math.tau * n / 24)) for n in range(24))
ARROW = ((0.0, 1.0), (2.5, 0.8), (math.pi, 0.35), (-2.5, 0.8))  # angle from the heading, length

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Point = tuple[float, float]


@dataclass(frozen=True)
class FloorScale:
    """Converts metres (y upwards) to pixels."""

    left_m: float
    top_m: float
    scale: float

    def pixels_of(self, x: float, y: float) -> Point:
        """Pixels of a point on the floor."""
        return MARGIN_PX + (x - self.left_m) * self.scale, MARGIN_PX + (self.top_m - y) * self.scale


def overlap(a: Box, b: Box) -> float:
    """Shared area of two boxes."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def place_label(content: str, thing: Box, taken: list[Box], limits: Point) -> Point:
    """Find the place (middle, baseline) for a label next to `thing` with the least overlap; adds its box to `taken`."""
    half = len(content) * LABEL_CHAR_PX / 2
    anchor = ((thing[0] + thing[2]) / 2, (thing[1] + thing[3]) / 2)
    over, under = thing[1] - anchor[1] - 4, thing[3] - anchor[1] + 13
    side = thing[2] - anchor[0] + half + 4
    corner = thing[2] - anchor[0] + half * 0.7
    offsets = (
        (0.0, over),
        (0.0, under),
        (side, 4.0),
        (-side, 4.0),
        (corner, over + 2),
        (-corner, over + 2),
        (corner, under - 2),
        (-corner, under - 2),
    )
    tried = []
    for place, (dx, dy) in enumerate(offsets):
        x = min(max(anchor[0] + dx, half + 2), limits[0] - half - 2)
        y = min(max(anchor[1] + dy, LABEL_HEIGHT_PX), limits[1] - 4)
        box = (x - half, y - LABEL_HEIGHT_PX + 3, x + half, y + 3)
        tried.append((sum(overlap(box, other) for other in taken if other != thing) + place, (x, y), box))
    _, best, box = min(tried)
    taken.append(box)
    return best


def corners(view: FloorScale, shape: Rectangle) -> list[Point]:
    """The outline of a footprint in pixels: four corners, or points around an ellipse."""
    cos, sin = math.cos(shape.yaw), math.sin(shape.yaw)
    found = []
    for a, b in ROUND if shape.is_round else SQUARE:
        dx, dy = a * shape.width, b * shape.depth
        found.append(view.pixels_of(shape.x + dx * cos - dy * sin, shape.y + dx * sin + dy * cos))
    return found


def bounding_box(shape: list[Point]) -> Box:
    """The upright box around an outline."""
    xs, ys = [x for x, _ in shape], [y for _, y in shape]
    return min(xs), min(ys), max(xs), max(ys)


def arrow(view: FloorScale, point: PathPoint, size: float) -> list[Point]:
    """A small arrowhead at a pose, in pixels."""
    x, y = view.pixels_of(point.x, point.y)
    return [
        (x + size * length * math.cos(point.yaw + angle), y - size * length * math.sin(point.yaw + angle))
        for angle, length in ARROW
    ]


def draw_map(trace: EpisodeTrace) -> Markup:
    """The floor plan with the path of one episode."""
    low_x, low_y, high_x, high_y = trace.bounds
    wide, deep = max(high_x - low_x, 0.1), max(high_y - low_y, 0.1)
    scale = min((MAP_WIDTH_PX - 2 * MARGIN_PX) / wide, (MAP_HEIGHT_PX - 2 * MARGIN_PX) / deep)
    view = FloorScale(low_x, high_y, scale)
    limits = (wide * scale + 2 * MARGIN_PX, deep * scale + 2 * MARGIN_PX)

    def draw(figure: Figure) -> None:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(0.0, limits[0])
        axes.set_ylim(limits[1], 0.0)
        _draw(axes, view, trace, limits)

    return picture(draw, f"Map of episode {trace.result.index + 1}", *limits)


def _draw(axes: Axes, view: FloorScale, trace: EpisodeTrace, limits: Point) -> None:
    from matplotlib.colors import is_color_like
    from matplotlib.patches import Circle, Polygon
    from matplotlib.path import Path

    def outline(
        points: list[Point], fill: str, edge: str = "none", width: float = 1.0, tip: str = ""
    ) -> None:
        gid = f"tip:{tip}" if tip else None
        axes.add_patch(Polygon(points, facecolor=fill, edgecolor=edge, linewidth=width, gid=gid, zorder=2))

    low_x, low_y, high_x, high_y = trace.bounds
    whole = Rectangle((low_x + high_x) / 2, (low_y + high_y) / 2, high_x - low_x, high_y - low_y)
    areas = [corners(view, area) for area in trace.floors or [whole]]
    for area in areas:
        outline(area, HEX["floor"])
    floor = Path.make_compound_path(*(Path([*area, area[0]], closed=True) for area in areas))
    for thing in trace.objects:
        if thing.is_target:  # drawn as a circle; the score uses the true surface
            reach = SUCCESS_RADIUS_M + max(thing.footprint.width, thing.footprint.depth) / 2
            middle = view.pixels_of(thing.footprint.x, thing.footprint.y)
            ring = Circle(middle, reach * view.scale, facecolor=HEX["ok"], alpha=0.1, zorder=2, gid=CLIPPED)
            edge = Circle(
                middle, reach * view.scale, fill=False, ec=HEX["ok"], ls="--", lw=1.5, zorder=2, gid=CLIPPED
            )
            for one in (ring, edge):
                axes.add_patch(one)
                one.set_clip_path(floor, axes.transData)
    taken: list[Box] = []
    for wall in trace.walls:
        outline(corners(view, wall), HEX["wall"])
        taken.append(bounding_box(corners(view, wall)))
    for piece in trace.furniture:
        outline(corners(view, piece), HEX["line"], HEX["faint"], tip="furniture")
        taken.append(bounding_box(corners(view, piece)))
    for thing in trace.objects:
        shape = corners(view, thing.footprint)
        fill = thing.colour if is_color_like(thing.colour) else HEX["faint"]
        outline(
            shape, fill, HEX["ok" if thing.is_target else "wall"], 2.5 if thing.is_target else 1.0, thing.name
        )
        taken.append(bounding_box(shape))
    pixels = [view.pixels_of(point.x, point.y) for point in trace.path]
    if pixels:
        axes.plot(*zip(*pixels, strict=True), color=HEX["path"], linewidth=2.5, zorder=2)
        taken += [(x - 3, y - 3, x + 3, y + 3) for x, y in pixels[:: max(len(pixels) // 60, 1)]]
    for decision in trace.decisions:
        if decision.pose is not None:
            policy = decision.source == "policy"
            axes.plot(
                *view.pixels_of(decision.pose.x, decision.pose.y), "o", markersize=8, zorder=3,
                mfc=HEX["policy-soft" if policy else "path"], mec=HEX["policy" if policy else "panel"],
                gid=f"tip:{decision.index + 1}: {decision.action}",
            )  # fmt: skip
    labels = [(one.name, bounding_box(corners(view, one.footprint)), one.is_target) for one in trace.objects]
    labels.sort(key=lambda label: not label[2])
    if trace.path:
        first, last = trace.path[0], trace.path[-1]
        outline(arrow(view, first, 11), HEX["panel"], HEX["path"], 2.0, "start")
        outline(
            arrow(view, last, 12),
            HEX["ok" if trace.result.success else "bad"],
            HEX["panel"],
            1.5,
            "last position",
        )
        end = "stop" if trace.result.said_stop else "end"
        labels[:0] = [
            (name, bounding_box(arrow(view, at, 11)), True) for name, at in (("start", first), (end, last))
        ]
    for name, box, bold in labels:
        x, y = place_label(name, box, taken, limits)
        axes.text(x, y, name, ha="center", fontsize=11, weight="bold" if bold else "normal", zorder=4)

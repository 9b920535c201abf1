# SPDX-License-Identifier: Apache-2.0
"""The map of an episode: walls, objects, the driven path, start, decisions, stop, and the goal region."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from specnav.report.charts import CLIPPED, HEX, picture
from specnav.results.trace import EpisodeTrace, Rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

SUCCESS_RADIUS_M = 0.8
LABEL_CHAR_PX, LABEL_HEIGHT_PX = 6.3, 14.0
MAP_WIDTH_PX, MAP_HEIGHT_PX, MARGIN_PX = 520.0, 420.0, 10.0
ARROW = ((1.0, 0.0), (-0.64, 0.48), (-0.35, 0.0), (-0.64, -0.48), (1.0, 0.0))  # an arrowhead to the right

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Point = tuple[float, float]


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


def footprint(shape: Rectangle, **style: Any) -> Patch:
    """The outline of a wall, a thing or an area, in metres."""
    from matplotlib.patches import Ellipse
    from matplotlib.patches import Rectangle as Oblong

    middle, size, angle = (shape.x, shape.y), (shape.width, shape.depth), math.degrees(shape.yaw)
    if shape.is_round:
        return Ellipse(middle, *size, angle=angle, **style)
    corner = (shape.x - shape.width / 2, shape.y - shape.depth / 2)
    return Oblong(corner, *size, angle=angle, rotation_point="center", **style)


def draw_map(trace: EpisodeTrace) -> Markup:
    """The floor plan with the path of one episode."""
    low_x, low_y, high_x, high_y = trace.bounds
    wide, deep = max(high_x - low_x, 0.1), max(high_y - low_y, 0.1)
    scale = min((MAP_WIDTH_PX - 2 * MARGIN_PX) / wide, (MAP_HEIGHT_PX - 2 * MARGIN_PX) / deep)
    margin = MARGIN_PX / scale

    def draw(figure: Figure) -> None:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set_xlim(low_x - margin, low_x + wide + margin)
        axes.set_ylim(high_y - deep - margin, high_y + margin)
        _draw(axes, trace, scale)

    limits = (wide * scale + 2 * MARGIN_PX, deep * scale + 2 * MARGIN_PX)
    return picture(draw, f"Map of episode {trace.result.index + 1}", *limits)


def _draw(axes: Axes, trace: EpisodeTrace, scale: float) -> None:
    from matplotlib.colors import is_color_like
    from matplotlib.patches import Circle
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D

    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    taken: list[Box] = []

    def box(points: Any, around: float = 0.0) -> Box:
        """The upright box around points in metres, in pixels from the upper left."""
        xs, ys = zip(*points, strict=True)
        x, y = (min(xs) - left) * scale, (top - max(ys)) * scale
        return x - around, y - around, (max(xs) - left) * scale + around, (top - min(ys)) * scale + around

    def outline(shape: Rectangle, fill: str, edge: str = "none", width: float = 1.0, tip: str = "") -> Any:
        """Draw a footprint; returns its outline in metres."""
        gid = f"tip:{tip}" if tip else None
        patch = footprint(shape, facecolor=fill, edgecolor=edge, linewidth=width, gid=gid, zorder=2)
        axes.add_patch(patch)
        return patch.get_patch_transform().transform_path(patch.get_path())

    low_x, low_y, high_x, high_y = trace.bounds
    whole = Rectangle((low_x + high_x) / 2, (low_y + high_y) / 2, high_x - low_x, high_y - low_y)
    floor = Path.make_compound_path(*(outline(area, HEX["floor"]) for area in trace.floors or [whole]))
    for thing in trace.objects:
        if thing.is_target:  # drawn as a circle; the score uses the true surface
            reach = SUCCESS_RADIUS_M + max(thing.footprint.width, thing.footprint.depth) / 2
            middle = (thing.footprint.x, thing.footprint.y)
            ring = Circle(middle, reach, facecolor=HEX["ok"], alpha=0.1, zorder=2, gid=CLIPPED)
            edge = Circle(middle, reach, fill=False, ec=HEX["ok"], ls="--", lw=1.5, zorder=2, gid=CLIPPED)
            for one in (ring, edge):
                axes.add_patch(one)
                one.set_clip_path(floor, axes.transData)
    for wall in trace.walls:
        taken.append(box(outline(wall, HEX["wall"]).vertices))
    for piece in trace.furniture:
        taken.append(box(outline(piece, HEX["line"], HEX["faint"], tip="furniture").vertices))
    labels: list[tuple[str, Box, bool]] = []
    for thing in trace.objects:
        fill = thing.colour if is_color_like(thing.colour) else HEX["faint"]
        edge_of, width = (HEX["ok"], 2.5) if thing.is_target else (HEX["wall"], 1.0)
        taken.append(box(outline(thing.footprint, fill, edge_of, width, thing.name).vertices))
        labels.append((thing.name, taken[-1], thing.is_target))
    labels.sort(key=lambda label: not label[2])
    if trace.path:
        points = [(point.x, point.y) for point in trace.path]
        axes.plot(*zip(*points, strict=True), color=HEX["path"], linewidth=2.5, zorder=2)
        taken += [box([point], 3) for point in points[:: max(len(points) // 60, 1)]]
    for decision in trace.decisions:
        if decision.pose is not None:
            policy = decision.source == "policy"
            axes.plot(
                decision.pose.x, decision.pose.y, "o", markersize=8, zorder=3,
                mfc=HEX["policy-soft" if policy else "path"], mec=HEX["policy" if policy else "panel"],
                gid=f"tip:{decision.index + 1}: {decision.action}",
            )  # fmt: skip
    if trace.path:
        first, last = trace.path[0], trace.path[-1]
        done, end = HEX["ok" if trace.result.success else "bad"], "stop" if trace.result.said_stop else "end"
        for at, size, fill, edge_of, width, tip in (
            (first, 22, HEX["panel"], HEX["path"], 2.0, "start"),
            (last, 24, done, HEX["panel"], 1.5, "last position"),
        ):
            arrow = Path(ARROW, closed=True).transformed(Affine2D().rotate(at.yaw))
            axes.plot(
                at.x, at.y, marker=arrow, markersize=size, mfc=fill, mec=edge_of, mew=width, gid=f"tip:{tip}", zorder=2
            )
        labels[:0] = [(name, box([(at.x, at.y)], 9), True) for name, at in (("start", first), (end, last))]
    for name, thing_box, bold in labels:
        x, y = place_label(name, thing_box, taken, ((right - left) * scale, (top - bottom) * scale))
        weight = "bold" if bold else "normal"
        axes.text(left + x / scale, top - y / scale, name, ha="center", fontsize=11, weight=weight, zorder=4)

"""The map of an episode as inline SVG: walls, objects, the driven path, start, decisions, stop, and the goal region."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specnav.report.drawing import circle, escape, outline, svg, text, trail
from specnav.results.trace import Decision, EpisodeTrace, MapObject, PathPoint, Rectangle

SUCCESS_RADIUS_M = 0.8
LABEL_CHAR_PX, LABEL_HEIGHT_PX = 6.3, 14.0
MAP_WIDTH_PX, MAP_HEIGHT_PX, MARGIN_PX = 520.0, 420.0, 10.0
SQUARE = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
ROUND = tuple((0.5 * math.cos(math.tau * n / 24), 0.5 * math.sin(math.tau * n / 24)) for n in range(24))
ARROW = ((0.0, 1.0), (2.5, 0.8), (math.pi, 0.35), (-2.5, 0.8))  # angle from the heading, length

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Point = tuple[float, float]


@dataclass(frozen=True)
class View:
    """Metres to pixels, y upwards."""

    left_m: float
    top_m: float
    scale: float

    def at(self, x: float, y: float) -> Point:
        """Pixels of a point on the floor."""
        return MARGIN_PX + (x - self.left_m) * self.scale, MARGIN_PX + (self.top_m - y) * self.scale


def overlap(a: Box, b: Box) -> float:
    """Shared area of two boxes."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def place_label(content: str, thing: Box, taken: list[Box], limits: Point) -> Point:
    """Middle and baseline for a label beside `thing` with the least overlap; adds its box to `taken`."""
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


def corners(view: View, shape: Rectangle) -> list[Point]:
    """The outline of a footprint in pixels: four corners, or points around an ellipse."""
    cos, sin = math.cos(shape.yaw), math.sin(shape.yaw)
    found = []
    for a, b in ROUND if shape.is_round else SQUARE:
        dx, dy = a * shape.width, b * shape.depth
        found.append(view.at(shape.x + dx * cos - dy * sin, shape.y + dx * sin + dy * cos))
    return found


def bounding_box(shape: list[Point]) -> Box:
    """The upright box around an outline."""
    xs, ys = [x for x, _ in shape], [y for _, y in shape]
    return min(xs), min(ys), max(xs), max(ys)


def arrow(view: View, point: PathPoint, size: float) -> list[Point]:
    """A small arrowhead at a pose, in pixels."""
    x, y = view.at(point.x, point.y)
    return [
        (x + size * length * math.cos(point.yaw + angle), y - size * length * math.sin(point.yaw + angle))
        for angle, length in ARROW
    ]


def goal_region(view: View, goal: MapObject, clip: str) -> str:
    """The band within reach of the target's surface (drawn round; the score uses the true surface), on the floor."""
    reach = SUCCESS_RADIUS_M + max(goal.footprint.width, goal.footprint.depth) / 2
    style = "fill:var(--ok);fill-opacity:.1;stroke:var(--ok);stroke-dasharray:5 4;stroke-width:1.5"
    shape = circle(*view.at(goal.footprint.x, goal.footprint.y), reach * view.scale, style)
    return f'<g clip-path="url(#{clip})">{shape}</g>'


def decision_dot(view: View, decision: Decision) -> str:
    """Where a decision was made: filled for the model, hollow for the exploration policy."""
    if decision.pose is None:
        return ""
    style = "fill:var(--path);stroke:var(--panel)"
    if decision.source == "policy":
        style = "fill:var(--policy-soft);stroke:var(--policy);stroke-width:2"
    return circle(
        *view.at(decision.pose.x, decision.pose.y), 4, style, f"{decision.index + 1}: {decision.action}"
    )


def draw_map(trace: EpisodeTrace) -> str:
    """The floor plan with the path of one episode."""
    low_x, low_y, high_x, high_y = trace.bounds
    wide, deep = max(high_x - low_x, 0.1), max(high_y - low_y, 0.1)
    scale = min((MAP_WIDTH_PX - 2 * MARGIN_PX) / wide, (MAP_HEIGHT_PX - 2 * MARGIN_PX) / deep)
    view = View(low_x, high_y, scale)
    limits = (wide * scale + 2 * MARGIN_PX, deep * scale + 2 * MARGIN_PX)
    middle = ((low_x + high_x) / 2, (low_y + high_y) / 2)
    areas = trace.floors or [Rectangle(*middle, wide, deep)]
    floor = "".join(outline(corners(view, area), "fill:var(--floor)") for area in areas)
    clip = f"floor{trace.result.index}"
    body = [f'<clipPath id="{clip}">{floor}</clipPath>{floor}']
    body += [goal_region(view, thing, clip) for thing in trace.objects if thing.is_target]
    body += [outline(corners(view, wall), "fill:var(--wall)") for wall in trace.walls]
    taken: list[Box] = [bounding_box(corners(view, wall)) for wall in trace.walls]
    for piece in trace.furniture:
        shape = corners(view, piece)
        body.append(outline(shape, "fill:var(--line);stroke:var(--faint)", "furniture"))
        taken.append(bounding_box(shape))
    for thing in trace.objects:
        edge = "var(--ok);stroke-width:2.5" if thing.is_target else "var(--wall);stroke-width:1"
        shape = corners(view, thing.footprint)
        body.append(outline(shape, f"fill:{escape(thing.colour)};stroke:{edge}", thing.name))
        taken.append(bounding_box(shape))
    pixels = [view.at(point.x, point.y) for point in trace.path]
    if pixels:
        body.append(trail(pixels, "stroke:var(--path);stroke-width:2.5;stroke-linejoin:round"))
        taken += [(x - 3, y - 3, x + 3, y + 3) for x, y in pixels[:: max(len(pixels) // 60, 1)]]
    body += [decision_dot(view, decision) for decision in trace.decisions]
    body += ends(view, trace, taken, limits)
    for thing in sorted(trace.objects, key=lambda item: not item.is_target):
        spot = place_label(thing.name, bounding_box(corners(view, thing.footprint)), taken, limits)
        style = "font-size:11px;font-weight:600" if thing.is_target else "font-size:11px"
        body.append(text(*spot, thing.name, "middle", "halo", style))
    return svg(*limits, "".join(body), f"Map of episode {trace.result.index + 1}")


def ends(view: View, trace: EpisodeTrace, taken: list[Box], limits: Point) -> list[str]:
    """Arrowheads and labels of the first and last pose."""
    if not trace.path:
        return []
    first, last = trace.path[0], trace.path[-1]
    done = "var(--ok)" if trace.result.success else "var(--bad)"
    parts = [
        outline(arrow(view, first, 11), "fill:var(--panel);stroke:var(--path);stroke-width:2", "start"),
        outline(arrow(view, last, 12), f"fill:{done};stroke:var(--panel);stroke-width:1.5", "last position"),
    ]
    for name, point in (("start", first), ("stop" if trace.result.said_stop else "end", last)):
        spot = place_label(name, bounding_box(arrow(view, point, 11)), taken, limits)
        parts.append(text(*spot, name, "middle", "halo", "font-weight:600"))
    return parts

# SPDX-License-Identifier: Apache-2.0
"""A room: walls, doorways, nameable objects, furniture, and queries on its geometry.

All records are frozen; `layout.furnish` makes them from a seed. A room is independent of rendering and of the robot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from navsim.geometry import Disc, Pose2D, Rect, Shape
from navsim.kinds import FURNITURE_BY_NAME, KIND_BY_NAME, ObjectKind

WALL_HEIGHT = 2.5
WALL_THICKNESS = 0.10
DOORWAY_HEIGHT = 2.05
THING_BY_NAME = KIND_BY_NAME | FURNITURE_BY_NAME


class _Thing:
    """An object on the floor: a kind, rotated by `yaw` and scaled."""

    kind: str
    x: float
    y: float
    yaw: float
    scale: float

    @property
    def height(self) -> float:
        """Height of its top above the floor [m]."""
        return THING_BY_NAME[self.kind].height * self.scale

    @property
    def opaque(self) -> bool:
        """Whether it hides objects behind it."""
        return THING_BY_NAME[self.kind].opaque

    @cached_property
    def shape(self) -> Shape:
        """Footprint on the floor."""
        return footprint(THING_BY_NAME[self.kind], self.x, self.y, self.yaw, self.scale)


@dataclass(frozen=True)
class SceneObject(_Thing):
    """A nameable object: its kind and colour are its name; `scale` and `tone` vary size and brightness a little."""

    kind: str
    colour: str
    x: float
    y: float
    yaw: float
    scale: float = 1.0
    tone: float = 1.0

    @property
    def name(self) -> str:
        """The name used in instructions, for example "silver bottle"."""
        return f"{self.colour} {self.kind}"

    def distance_to_surface(self, pose: Pose2D) -> float:
        """Distance from the robot's centre to the footprint's outline [m], 0 inside."""
        return max(self.shape.distance(pose.x, pose.y), 0.0)


@dataclass(frozen=True)
class Furniture(_Thing):
    """An obstacle that is never named."""

    kind: str
    x: float
    y: float
    yaw: float
    tone: int
    scale: float = 1.0


@dataclass(frozen=True)
class _Extent:
    """From a point to another."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True)
class Wall(_Extent):
    """A straight, axis-parallel wall between the middles of its two ends."""

    @cached_property
    def shape(self) -> Rect:
        """Footprint, with the ends extended by half a thickness so that corners close."""
        half = WALL_THICKNESS / 2
        return Rect(
            (self.x0 + self.x1) / 2,
            (self.y0 + self.y1) / 2,
            0.0,
            abs(self.x1 - self.x0) / 2 + half,
            abs(self.y1 - self.y0) / 2 + half,
        )


@dataclass(frozen=True)
class Doorway(_Extent):
    """An opening in the wall between two areas; the line runs across it."""

    @property
    def centre(self) -> tuple[float, float]:
        """Its centre."""
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2


@dataclass(frozen=True)
class Area(_Extent):
    """A rectangular floor: the room itself, or the second room or hallway behind a doorway."""


@dataclass(frozen=True)
class RoomAppearance:
    """Appearance of surfaces and light; indices into the world's textures, colours as RGB."""

    floor: int = 0
    wall: int = 0
    floor_tint: tuple[float, float, float] = (0.8, 0.8, 0.8)
    wall_tint: tuple[float, float, float] = (0.85, 0.82, 0.75)
    light_yaw: float = 0.6
    light_gain: float = 1.0


@dataclass(frozen=True)
class Room:
    """Everything static in an episode. `bounds` is (x0, y0, x1, y1) around all areas, in metres."""

    seed: int
    split: str
    areas: tuple[Area, ...]
    walls: tuple[Wall, ...]
    doorways: tuple[Doorway, ...]
    objects: tuple[SceneObject, ...]
    furniture: tuple[Furniture, ...]
    look: RoomAppearance

    def __hash__(self) -> int:
        """A cheap hash: rooms are cache keys, and equality still compares everything."""
        return hash((self.seed, self.split, len(self.objects)))

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """(x0, y0, x1, y1) of all areas together [m]."""
        return (
            min(a.x0 for a in self.areas),
            min(a.y0 for a in self.areas),
            max(a.x1 for a in self.areas),
            max(a.y1 for a in self.areas),
        )

    @cached_property
    def obstacles(self) -> tuple[Shape, ...]:
        """Footprints of everything the robot can bump into."""
        things: tuple[Wall | _Thing, ...] = (*self.walls, *self.objects, *self.furniture)
        return tuple(thing.shape for thing in things)

    def clearance(self, x: float, y: float) -> float:
        """Distance from a point to the nearest obstacle [m], negative inside one."""
        return min(shape.distance(x, y) for shape in self.obstacles)

    def contains(self, x: float, y: float) -> bool:
        """Whether a point lies over one of the areas' floors or in a doorway."""
        if any(a.x0 <= x <= a.x1 and a.y0 <= y <= a.y1 for a in self.areas):
            return True
        half = WALL_THICKNESS / 2
        return any(
            min(d.x0, d.x1) - half <= x <= max(d.x0, d.x1) + half
            and min(d.y0, d.y1) - half <= y <= max(d.y0, d.y1) + half
            for d in self.doorways
        )

    def find(self, name: str) -> SceneObject | None:
        """The object with this name, or None; names are unique in a room."""
        return next((thing for thing in self.objects if thing.name == name), None)


def footprint(kind: ObjectKind, x: float, y: float, yaw: float, scale: float) -> Shape:
    """Footprint of a kind standing at a place."""
    if kind.radius > 0.0:
        return Disc(x, y, kind.radius * scale)
    return Rect(x, y, yaw, kind.half[0] * scale, kind.half[1] * scale)

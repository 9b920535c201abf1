# SPDX-License-Identifier: Apache-2.0
"""Furnishes a room from a random stream and a list of (kind, colour) pairs.

About a quarter of the rooms have a second room or a hallway behind a doorway. Gaps between obstacles are wide enough
for the robot, and doorways stay clear. Only `random.Random` is used, so a seed gives the same room on every machine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from navsim.errors import RoomError
from navsim.geometry import Shape, wrap_angle
from navsim.kinds import FURNITURE, FURNITURE_TONES, KIND_BY_NAME, ObjectKind
from navsim.rooms import (
    WALL_THICKNESS,
    Area,
    Doorway,
    Furniture,
    Room,
    RoomAppearance,
    SceneObject,
    Wall,
    footprint,
)

GAP = 0.66  # metres between obstacles: the robot (0.44 m wide) passes with room to spare
WALL_GAP = 0.12
DOORWAY_KEEP_CLEAR = 0.85
FLOOR_TEXTURES = 4
WALL_TEXTURES = 4

_FLOOR_TINTS = (
    (0.78, 0.64, 0.48), (0.62, 0.48, 0.35), (0.68, 0.61, 0.50), (0.55, 0.49, 0.42), (0.80, 0.74, 0.62),
)  # fmt: skip
_WALL_TINTS = (
    (0.98, 0.94, 0.84), (0.94, 0.88, 0.74), (0.90, 0.90, 0.76), (0.96, 0.86, 0.74), (0.98, 0.88, 0.80),
)  # fmt: skip


def furnish(rng: random.Random, seed: int, split: str, pairs: Sequence[tuple[str, str]]) -> Room:
    """Return a room that contains each of `pairs` once, in that order in `Room.objects`."""
    for _ in range(200):
        areas, walls, doorways = _shell(rng)
        room = _fill(rng, seed, split, pairs, areas, walls, doorways)
        if room is not None:
            return room
    raise RoomError(f"could not place {len(pairs)} objects in room {seed} ({split}); ask for fewer")


def _shell(rng: random.Random) -> tuple[tuple[Area, ...], tuple[Wall, ...], tuple[Doorway, ...]]:
    if rng.random() < 0.74:
        area = Area(0.0, 0.0, rng.uniform(4.2, 6.6), rng.uniform(4.0, 5.6))
        corners = ((area.x0, area.y0), (area.x1, area.y0), (area.x1, area.y1), (area.x0, area.y1))
        walls = tuple(Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4))
        return (area,), walls, ()
    first = Area(0.0, 0.0, rng.uniform(3.8, 5.0), rng.uniform(3.8, 5.0))
    form = rng.random()
    if form < 0.5:
        width, depth = rng.uniform(3.0, 4.0), rng.uniform(3.0, 4.5)
    elif form < 0.75:
        width, depth = rng.uniform(1.7, 2.1), rng.uniform(4.0, 5.5)
    else:
        width, depth = rng.uniform(3.5, 4.8), rng.uniform(1.7, 2.1)
    low = rng.uniform(max(-depth + 1.8, -1.0), first.y1 - 1.8)
    second = Area(first.x1, low, first.x1 + width, low + depth)
    gap = rng.uniform(1.0, 1.3)
    shared = max(first.y0, second.y0) + 0.2, min(first.y1, second.y1) - 0.2
    start = rng.uniform(shared[0], max(shared[0], shared[1] - gap))
    x = first.x1
    doorway = Doorway(x, start, x, start + gap)
    bottom, top = min(first.y0, second.y0), max(first.y1, second.y1)
    half = WALL_THICKNESS / 2
    walls = (
        Wall(first.x0, first.y0, first.x0, first.y1),
        Wall(first.x0, first.y0, x, first.y0),
        Wall(first.x0, first.y1, x, first.y1),
        Wall(second.x1, second.y0, second.x1, second.y1),
        Wall(x, second.y0, second.x1, second.y0),
        Wall(x, second.y1, second.x1, second.y1),
        # The ends at the opening are shortened by the length that Wall.shape adds.
        Wall(x, bottom, x, doorway.y0 - half),
        Wall(x, doorway.y1 + half, x, top),
    )
    return (first, second), walls, (doorway,)


def _fill(
    rng: random.Random,
    seed: int,
    split: str,
    pairs: Sequence[tuple[str, str]],
    areas: tuple[Area, ...],
    walls: tuple[Wall, ...],
    doorways: tuple[Doorway, ...],
) -> Room | None:
    taken: list[Shape] = []
    weights = [(a.x1 - a.x0) * (a.y1 - a.y0) for a in areas]
    placed: dict[int, SceneObject] = {}
    # Tall objects first, as they are the hardest to place; the order in the room stays the caller's.
    for index in sorted(range(len(pairs)), key=lambda i: -KIND_BY_NAME[pairs[i][0]].height):
        kind, colour = KIND_BY_NAME[pairs[index][0]], pairs[index][1]
        scale = rng.uniform(*kind.scale)
        spot = _spot(rng, kind, scale, areas, weights, doorways, taken, GAP)
        if spot is None:
            return None
        taken.append(footprint(kind, *spot, scale))
        placed[index] = SceneObject(kind.name, colour, *spot, scale=scale, tone=rng.uniform(0.92, 1.06))
    furniture: list[Furniture] = []
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = rng.choice(FURNITURE)
        scale = rng.uniform(*kind.scale)
        spot = _spot(rng, kind, scale, areas, weights, doorways, taken, GAP + 0.1)
        if spot is not None:
            taken.append(footprint(kind, *spot, scale))
            furniture.append(
                Furniture(kind.name, *spot, tone=rng.randrange(len(FURNITURE_TONES)), scale=scale)
            )
    look = RoomAppearance(
        floor=rng.randrange(FLOOR_TEXTURES),
        wall=rng.randrange(WALL_TEXTURES),
        floor_tint=_jitter(rng, rng.choice(_FLOOR_TINTS)),
        wall_tint=_jitter(rng, rng.choice(_WALL_TINTS)),
        light_yaw=rng.uniform(-math.pi, math.pi),
        light_gain=rng.uniform(0.9, 1.12),
    )
    objects = tuple(placed[index] for index in range(len(pairs)))
    return Room(seed, split, areas, walls, doorways, objects, tuple(furniture), look)


def _jitter(rng: random.Random, tint: tuple[float, float, float]) -> tuple[float, float, float]:
    gain = rng.uniform(0.92, 1.06)
    return (min(tint[0] * gain, 1.0), min(tint[1] * gain, 1.0), min(tint[2] * gain, 1.0))


def _spot(
    rng: random.Random,
    kind: ObjectKind,
    scale: float,
    areas: tuple[Area, ...],
    weights: list[float],
    doorways: tuple[Doorway, ...],
    taken: list[Shape],
    gap: float,
) -> tuple[float, float, float] | None:
    """Return a free (x, y, yaw) for an object, or None after enough attempts."""
    for _ in range(60):
        area = rng.choices(areas, weights)[0]
        x, y, yaw = _at_wall(rng, kind, scale, area) if kind.at_wall else _on_floor(rng, kind, scale, area)
        shape = footprint(kind, x, y, yaw, scale)
        if any(shape.distance(*d.centre) < DOORWAY_KEEP_CLEAR for d in doorways):
            continue
        if all(_apart(shape, other, gap) for other in taken):
            return x, y, yaw
    return None


def _apart(a: Shape, b: Shape, gap: float) -> bool:
    """Whether two footprints are certainly at least `gap` apart (circles around the narrower one)."""
    return max(a.distance(b.x, b.y) - b.reach, b.distance(a.x, a.y) - a.reach) >= gap


def _on_floor(rng: random.Random, kind: ObjectKind, scale: float, area: Area) -> tuple[float, float, float]:
    yaw = rng.uniform(-math.pi, math.pi)
    margin = footprint(kind, 0.0, 0.0, 0.0, scale).reach + WALL_THICKNESS / 2 + WALL_GAP
    x = rng.uniform(area.x0 + margin, max(area.x0 + margin, area.x1 - margin))
    y = rng.uniform(area.y0 + margin, max(area.y0 + margin, area.y1 - margin))
    return x, y, yaw


def _at_wall(rng: random.Random, kind: ObjectKind, scale: float, area: Area) -> tuple[float, float, float]:
    """Return a random pose with the back to a wall and the front (local +x) into the area."""
    depth = kind.half[0] * scale + WALL_THICKNESS / 2 + 0.003
    side_margin = kind.half[1] * scale + WALL_THICKNESS / 2 + 0.15
    side = rng.randrange(4)
    horizontal = side % 2 == 1  # the wall runs along x
    low, high = (area.x0, area.x1) if horizontal else (area.y0, area.y1)
    along = rng.uniform(low + side_margin, max(low + side_margin, high - side_margin))
    if side == 0:
        return area.x0 + depth, along, 0.0
    if side == 1:
        return along, area.y0 + depth, math.pi / 2
    if side == 2:
        return area.x1 - depth, along, wrap_angle(math.pi)
    return along, area.y1 - depth, -math.pi / 2


def wanted_pairs(
    rng: random.Random, target: tuple[str, str], allowed: Sequence[tuple[str, str]], count: int
) -> list[tuple[str, str]]:
    """Return the distractors of a target: 1 or 2 of its kind, 1 or 2 of its colour, and others up to `count`."""
    same_kind = [p for p in allowed if p[0] == target[0] and p != target]
    same_colour = [p for p in allowed if p[1] == target[1] and p != target]
    chosen = rng.sample(same_kind, rng.choice((1, 1, 2))) + rng.sample(same_colour, rng.choice((1, 1, 2)))
    others = [p for p in allowed if p != target and p not in chosen]
    rng.shuffle(others)
    doors = sum(pair[0] == "door" for pair in (target, *chosen))
    for pair in others:
        if len(chosen) >= count:
            break
        if sum(p[0] == pair[0] for p in chosen) + (pair[0] == target[0]) >= 3:
            continue
        if pair[0] == "door":
            if doors >= 2:
                continue
            doors += 1
        chosen.append(pair)
    return chosen[:count]

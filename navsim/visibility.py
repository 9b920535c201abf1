# SPDX-License-Identifier: Apache-2.0
"""Line of sight in the plane: the visible share of an object from a point, whatever the heading.

An estimate from footprints and heights, for placing starts and for oracles without a renderer. `World.segment` gives
the exact visibility in a frame.
"""

from __future__ import annotations

import math

from navsim.rooms import Furniture, Room, SceneObject

EYE_HEIGHT = 0.35
CAMERA_HFOV = math.pi / 2
_RAYS = 9


def _hides(blocker: SceneObject | Furniture, at: float, target: SceneObject, target_at: float) -> bool:
    """Return whether an opaque object at distance `at` covers the target's middle in the camera's view."""
    if not blocker.opaque:
        return False
    top = (blocker.height - EYE_HEIGHT) / max(at, 0.05)
    middle = (0.6 * target.height - EYE_HEIGHT) / max(target_at, 0.05)
    return top >= middle


def line_of_sight(room: Room, x: float, y: float, target: SceneObject) -> float:
    """Share (0..1) of the target's width that can be seen from a point, looking towards it."""
    middle, half = target.shape.angular_extent(x, y)
    things: tuple[SceneObject | Furniture, ...] = (*room.objects, *room.furniture)
    clear = 0
    for index in range(_RAYS):
        angle = middle + half * 0.92 * (2 * index / (_RAYS - 1) - 1)
        ux, uy = math.cos(angle), math.sin(angle)
        reach = target.shape.ray(x, y, ux, uy)
        if math.isinf(reach):
            continue
        if any(wall.shape.ray(x, y, ux, uy) < reach for wall in room.walls):
            continue
        for other in things:
            if other is not target:
                at = other.shape.ray(x, y, ux, uy)
                if at < reach and _hides(other, at, target, reach):
                    break
        else:
            clear += 1
    return clear / _RAYS

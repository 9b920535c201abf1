# SPDX-License-Identifier: Apache-2.0
"""Scores of one episode, as usual in the literature: success, SPL, navigation error, collisions.

Success with the target present: the robot said stop within reach of the right object, facing it, with nothing else
nearer in front. With the target absent: it said that it does not see it and did not say stop in front of anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from navsim.episodes import Episode
from navsim.geometry import Pose2D, bearing_to
from navsim.planner import shortest_path_length
from navsim.rooms import SceneObject

STOP_DISTANCE = 0.8  # metres from the robot's centre to the surface
FACING = math.radians(45.0)


@dataclass(frozen=True, slots=True)
class Score:
    """`reason`: success, no_stop, too_far, not_facing, wrong_object, or silent (an absent target never reported)."""

    success: bool
    reason: str
    spl: float
    navigation_error_m: float | None  # distance to the target's surface at the end; None when it is absent
    path_m: float
    shortest_path_m: float | None
    collisions: int
    stopped_at: str | None  # the nearest object within reach and in front at stop


def facing_angle(pose: Pose2D, thing: SceneObject) -> float:
    """Angle [rad] between the heading and the nearer of the object's middle and its nearest surface point."""
    return min(
        abs(bearing_to(pose, thing.x, thing.y)), abs(bearing_to(pose, *thing.shape.nearest(pose.x, pose.y)))
    )


def faced_object(objects: tuple[SceneObject, ...], pose: Pose2D) -> SceneObject | None:
    """The nearest object within stopping distance and in front, or None."""
    faced = [
        thing
        for thing in objects
        if thing.distance_to_surface(pose) <= STOP_DISTANCE and facing_angle(pose, thing) <= FACING
    ]
    return min(faced, key=lambda thing: thing.distance_to_surface(pose), default=None)


def score_episode(
    episode: Episode,
    final: Pose2D,
    *,
    stopped: bool,
    path_m: float,
    collisions: int,
    said_absent: bool = False,
) -> Score:
    """Score the end of an episode.

    final: the last pose. stopped: whether the robot said stop. path_m: the driven length. said_absent: whether the
    robot said that it does not see the target (only used in episodes without a target).
    """
    faced = faced_object(episode.room.objects, final) if stopped else None
    target = episode.target
    if target is None:
        if faced is not None:
            reason = "wrong_object"
        else:
            reason = "success" if said_absent else "silent"
        good = reason == "success"
        return Score(good, reason, float(good), None, path_m, None, collisions, faced.name if faced else None)
    error = target.distance_to_surface(final)
    shortest = shortest_path_length(episode.room, episode.start, target)
    if not stopped:
        reason = "no_stop"
    elif faced is target or faced == target:
        reason = "success"
    elif faced is not None:
        reason = "wrong_object"
    elif error > STOP_DISTANCE:
        reason = "too_far"
    else:
        reason = "not_facing"
    good = reason == "success"
    spl = shortest / max(path_m, shortest, 1e-9) if good else 0.0
    return Score(good, reason, spl, error, path_m, shortest, collisions, faced.name if faced else None)

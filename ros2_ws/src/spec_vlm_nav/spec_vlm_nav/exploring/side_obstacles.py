# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Obstacles beside the robot: those it touched or passed, and those that earlier pictures showed.

Nearly all contacts of a robot that follows the model are grazes: the obstacle has left the picture,
it is beside the robot on the side of the target, and the next step touches it. So after a contact
the robot turns away from that side, and does not repeat the step that ended at the obstacle. And
points where the floor ended are remembered by odometry: a step that would pass too close to one is
replaced by a small turn and a stride. If no small turn helps, the step is made unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import math

import numpy as np
from spec_vlm_nav.common.codes import ActionSource
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.floor_reading import Colour, Floats, FloorReading
from spec_vlm_nav.exploring.moves import Move, turn_by
from spec_vlm_nav.language.actions import Action, ActionKind

SIDED = math.radians(4)  # with a smaller bearing of the target, the obstacle's side is unknown
ASIDE = math.radians(30)  # turn made instead of repeating a step that touched an obstacle
SAME = math.radians(10)  # largest difference between the headings of equal steps
SPOT = 0.1  # metres
TOUCHES = 8  # contacts remembered
RULE_WIDER = "something stands beside: pass it wider"
KEPT_M, KEPT_LOOKS = 1.6, 25  # largest distance and age (decisions) of remembered points
SEEN_M, THROUGH_M = 0.7, 0.15  # a point beyond SEEN_M with floor THROUGH_M behind it is removed
BESIDE, BESIDE_M = math.radians(22), 0.8  # the model sees what is straighter ahead or farther
SPARE_M = 0.03  # extra room required after a turn
TURNS = range(8, 45, 4)  # degrees
STRIDE_M = 0.4
STRAIGHT, SPOT_M = math.radians(6), 0.2  # tolerance of the pose in which the stride is made
LEAD_M = 0.9  # nearer to the target than this, the model's action is kept
_NONE = np.zeros((0, 3))


@dataclass(frozen=True)
class Passing:
    """
    Memory of passed and touched obstacles.

    side: side of the obstacle, +1: left; 0: unknown. touched: poses of the last contacts.
    """

    side: int = 0
    touched: tuple[Pose, ...] = ()

    def touches(self, place: Pose) -> Passing:
        """Return the memory after a motion that ended at an obstacle."""
        return replace(self, touched=(*self.touched, place)[-TOUCHES:])

    def sees(self, bearing: float, clear: bool | None) -> Passing:
        """Return the memory after a decision with the target in sight; clear: state of its way."""
        if clear is False and abs(bearing) >= SIDED:
            return replace(self, side=1 if bearing > 0 else -1)
        return self

    def around(self, place: Pose, bearing: float) -> Action | None:
        """Return the turn to make instead of a step that already touched an obstacle, or None."""
        return turn_by(-self.side_of(bearing) * ASIDE) if self.has_touched(place) else None

    def has_touched(self, place: Pose) -> bool:
        """Return whether a step with this pose already ended at an obstacle."""
        return any(
            spot.distance(place) < SPOT and abs(wrap(spot.yaw - place.yaw)) < SAME for spot in self.touched
        )

    def side_of(self, bearing: float) -> int:
        """Return the known or most likely side of the obstacle: +1 is left."""
        return self.side or (1 if bearing > 0 else -1)


@dataclass(frozen=True)
class SideObstacles:
    """
    Memory of obstacles beside the robot.

    points [n, 3]: x and y by odometry, m, and decisions since it was seen. colour: of the floor.
    way: pose for the stride that follows a turn.
    """

    points: Floats = field(default_factory=lambda: _NONE, compare=False)
    colour: Colour | None = None
    way: Pose | None = None

    def looks(self, place: Pose, floor: FloorReading, colour: Colour) -> SideObstacles:
        """Return the memory after a look at the floor from a place."""
        points = self.points + np.array([0.0, 0.0, 1.0])
        east, north = points[:, 0] - place.x, points[:, 1] - place.y
        far = np.hypot(east, north)
        kept = (far < KEPT_M) & (points[:, 2] < KEPT_LOOKS)
        if len(points):
            off = np.arctan2(north, east) - place.yaw
            off = np.arctan2(np.sin(off), np.cos(off))
            nearest = np.abs(off[:, None] - floor.bearings[None, :]).argmin(axis=1)
            in_view = np.abs(off) < floor.bearings.max()
            kept &= ~(in_view & (far > SEEN_M) & (far < floor.ends[nearest] - THROUGH_M))
        found = floor.ends < KEPT_M
        towards, ends = place.yaw + floor.bearings[found], floor.ends[found]
        new = np.stack(
            [
                place.x + ends * np.cos(towards),
                place.y + ends * np.sin(towards),
                np.zeros(len(ends)),
            ],
            axis=1,
        )
        return replace(self, points=np.concatenate([points[kept], new]), colour=colour)

    def gap(self, place: Pose, yaw: float, distance: float, beside_only: bool = False) -> float:
        """Return the least distance of a straight way to remembered points, m; inf: no points."""
        east, north = self.points[:, 0] - place.x, self.points[:, 1] - place.y
        along = east * math.cos(yaw) + north * math.sin(yaw)
        across = north * math.cos(yaw) - east * math.sin(yaw)
        if beside_only:
            is_beside = np.abs(np.arctan2(across, along)) > BESIDE
            is_beside &= np.hypot(along, across) < BESIDE_M
            along, across = along[is_beside], across[is_beside]
        past = along - np.clip(along, 0.0, distance)
        return float(np.hypot(past, across).min(initial=math.inf))

    def wider(
        self,
        move: Move,
        place: Pose,
        radius: float,
        clear: bool | None,
        contact: bool,
        target_m: float | None,
    ) -> tuple[SideObstacles, Move]:
        """
        Return the memory, and the move or its replacement.

        radius: room that the robot needs to either side, m. clear: whether the model calls its way
        clear. contact: the last motion ended at an obstacle. target_m: distance of the target;
        None: not in sight.
        """
        way, memory = self.way, replace(self, way=None)
        if move.action.is_stop or (target_m is not None and target_m < LEAD_M):
            return memory, move
        if way is not None and not contact and clear is not False:
            is_there = abs(wrap(way.yaw - place.yaw)) < STRAIGHT
            is_there = is_there and way.distance(place) < SPOT_M
            if is_there and self.gap(place, place.yaw, STRIDE_M) > radius:
                on = Action(ActionKind.FORWARD, round(100 * STRIDE_M))
                return memory, Move(on, ActionSource.EXPLORATION, RULE_WIDER)
        if move.action.kind is not ActionKind.FORWARD:
            return memory, move
        if self.gap(place, place.yaw, move.action.distance_m, beside_only=True) > radius:
            return memory, move
        for degrees in TURNS:
            for kind, sign in ((ActionKind.TURN_LEFT, 1), (ActionKind.TURN_RIGHT, -1)):
                yaw = place.yaw + sign * math.radians(degrees)
                if self.gap(place, yaw, STRIDE_M) > radius + SPARE_M:
                    turn = Move(Action(kind, degrees), ActionSource.EXPLORATION, RULE_WIDER)
                    return replace(memory, way=Pose(place.x, place.y, yaw)), turn
        return memory, move

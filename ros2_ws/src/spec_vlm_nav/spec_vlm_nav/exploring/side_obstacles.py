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
What stands on the floor beside the robot, remembered from the previous pictures.

Nearly all contacts of a robot that follows the model come with what has left the picture: it is
passed, is beside the robot by then, and the next step grazes it. So points where the floor ended
are remembered by odometry, and a step that would go past one of them too close is made a little to
the side instead: a turn and a stride. Where no small turn helps, the step is made as it was meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import math

import numpy as np
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.floor_reading import Colour, Floats, FloorReading
from spec_vlm_nav.exploring.moves import ActionSource, Move
from spec_vlm_nav.language.actions import Action, ActionKind

RULE_WIDER = "something stands beside: pass it wider"

KEPT_M, KEPT_LOOKS = 1.6, 25  # from the robot, and decisions: further or older is forgotten
SEEN_M, THROUGH_M = 0.7, 0.15  # a point that far away, with floor so far behind it, is not there
BESIDE, BESIDE_M = math.radians(22), 0.8  # what is straighter ahead, or further, the model sees
SPARE_M = 0.03  # of a turn that is to help
TURNS = range(8, 45, 4)  # degrees
STRIDE_M = 0.4
STRAIGHT, SPOT_M = math.radians(6), 0.2  # still where and as it turned
LEAD_M = 0.9  # so near to the target the model is left alone
_NONE = np.zeros((0, 3))


@dataclass(frozen=True)
class SideObstacles:
    """
    Memory of what stands beside.

    points [n, 3]: x and y by odometry, m, and decisions since it was seen. colour: of the floor.
    way: where a stride is to be made that a turn was made for.
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
        """Return how near a straight way leads past what is remembered, m; inf: past nothing."""
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
        Return the memory, and the move or what to do instead.

        radius: what the robot needs to either side, m. clear: whether the model calls its way so.
        contact: the last motion ended against something. target_m: how far the target is said to
        be; None: it is not in sight.
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

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
The way out of a place where the robot is stuck.

If the model calls every way blocked, the normal search finds nothing more: a gap between two
obstacles may be a few degrees wide, or too narrow for the model. So after some decisions on one
spot, untried headings are looked at one by one, first those where the pictures show enough floor
for the robot. A stride is made if the model calls the way clear; a shorter one if the pictures show
that the floor goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.side_obstacles import SideObstacles

PATIENCE = 8  # decisions on one spot; smaller values gave more contacts and no more finds
SHUT = 6  # decisions if each found the way blocked and no target
SPOT_M = 0.15
STRIDES = 2  # before the search goes on
CLEAR_M, FLOOR_M = 0.5, 0.3  # length of a stride: way called clear, or only floor seen
LENGTH_M = 0.7  # length of floor required for a stride
TRIED = math.radians(3.5)  # a look covers this angle to either side
FAR = math.radians(12)  # a larger distance from earlier looks adds no worth
STEP = 3  # degrees between compared headings
WAY_M = 0.7  # length of a way out
SPARE_M = 0.1  # extra width of a way out to either side
UNSURE = 0.05  # least worth of a heading without visible floor: the floor is often misread
FARTHER = 0.15  # share of a heading's worth lost by a turn of 180 degrees


@dataclass(frozen=True)
class Enclosed:
    """
    Memory of being stuck.

    spot: where the robot stands, m. stays: decisions there. is_shut: all of them found the way
    blocked and no target. strides: still to be made on the way out. tried: headings without a way.
    """

    spot: tuple[float, float] | None = None
    stays: int = 0
    is_shut: bool = True
    strides: int = 0
    tried: tuple[float, ...] = ()

    def decided_at(self, place: Pose, is_shut: bool) -> Enclosed:
        """
        Return the memory at a decision from a place.

        is_shut: the way was called blocked, and the target was not seen.
        """
        here = (place.x, place.y)
        if self.spot is not None and math.dist(self.spot, here) < SPOT_M:
            return replace(self, stays=self.stays + 1, is_shut=self.is_shut and is_shut)
        return Enclosed(here, 1, is_shut, self.strides)

    @property
    def is_stuck(self) -> bool:
        """Whether the robot has made too many decisions on this spot."""
        return self.stays > (SHUT if self.is_shut else PATIENCE)

    def strides_on(self) -> Enclosed:
        """Return the memory after a stride on the way out."""
        return replace(self, strides=(self.strides or STRIDES) - 1)

    def without_way(self, place: Pose) -> Enclosed:
        """Return the memory after a look that found no way out."""
        return replace(self, strides=0, tried=(*self.tried, place.yaw))

    def given_up(self) -> Enclosed:
        """Return the memory after every heading was tried: the normal search continues."""
        return replace(self, stays=0, tried=())

    def untried(self, beside: SideObstacles, place: Pose, radius: float) -> float | None:
        """Return the heading most likely to lead out; None if all were tried."""
        best, best_way = 0.0, None
        for degrees in range(0, 360, STEP):
            way = wrap(place.yaw + math.radians(degrees))
            off = min((abs(wrap(way - yaw)) for yaw in self.tried), default=math.pi)
            if off < TRIED:
                continue
            gap = min(beside.gap(place, way, WAY_M) / (radius + SPARE_M), 1.0)
            worth = (UNSURE + gap) * min(off, FAR)
            worth *= 1.0 - FARTHER * abs(wrap(way - place.yaw)) / math.pi
            if worth > best:
                best, best_way = worth, way
        return best_way

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
What is passed on the way to a target, and what was touched.

Nearly all contacts of a robot that follows the model are grazes: what it passes is beside it, no
longer in the picture, on the side where the target is. So after a contact it turns away from that
side, and the step that ended against something is not made again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.moves import turn_by
from spec_vlm_nav.language.actions import Action

SIDED = math.radians(4)  # a target straighter ahead than this has the obstacle on no side
ASIDE = math.radians(30)  # is turned where the step would be the one again that touched something
SAME = math.radians(10)  # between the headings of two such steps
SPOT = 0.1  # metres
TOUCHES = 8  # that are remembered


@dataclass(frozen=True)
class Passing:
    """
    What is being passed.

    side: +1: it is on the left; 0: not known. touched: where, and which way, the robot went
    against something, the last times.
    """

    side: int = 0
    touched: tuple[Pose, ...] = ()

    def touches(self, place: Pose) -> Passing:
        """Return the memory after a motion that ended against something."""
        return replace(self, touched=(*self.touched, place)[-TOUCHES:])

    def sees(self, bearing: float, clear: bool | None) -> Passing:
        """Return the memory after a decision with the target in sight, its way clear or not."""
        if clear is False and abs(bearing) >= SIDED:
            return replace(self, side=1 if bearing > 0 else -1)
        return self

    def around(self, place: Pose, bearing: float) -> Action | None:
        """Return the turn to make instead of a step that has already ended against something."""
        return turn_by(-self.side_of(bearing) * ASIDE) if self.has_touched(place) else None

    def has_touched(self, place: Pose) -> bool:
        """Whether a step from here, this way, has already ended against something."""
        return any(
            spot.distance(place) < SPOT and abs(wrap(spot.yaw - place.yaw)) < SAME
            for spot in self.touched
        )

    def side_of(self, bearing: float) -> int:
        """Return on which side of the robot something is, or most likely is: +1 is left."""
        return self.side or (1 if bearing > 0 else -1)

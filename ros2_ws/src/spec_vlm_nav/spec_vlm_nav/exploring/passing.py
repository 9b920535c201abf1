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
Obstacles passed on the way to a target, and places of contact.

Nearly all contacts of a robot that follows the model are grazes: the obstacle is beside it, out of
the picture, on the side of the target. So after a contact the robot turns away from that side, and
does not repeat the step that ended at the obstacle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.moves import turn_by
from spec_vlm_nav.language.actions import Action

SIDED = math.radians(4)  # with a smaller bearing of the target, the obstacle's side is unknown
ASIDE = math.radians(30)  # turn made instead of repeating a step that touched an obstacle
SAME = math.radians(10)  # largest difference between the headings of equal steps
SPOT = 0.1  # metres
TOUCHES = 8  # contacts remembered


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

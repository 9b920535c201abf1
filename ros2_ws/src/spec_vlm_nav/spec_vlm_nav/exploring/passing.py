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
side, and no step is made that leads to where one has ended against something. Most come about so:
the way is called blocked, the robot goes past what blocks it or turns away from it, now sees the
target along a clear way and turns to it at once, into what is by then beside it. That turn is made
smaller; and one that turns away from the target by little, its way blocked, is made larger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.language.actions import Action, ActionKind

SIDED = math.radians(4)  # a target straighter ahead than this has the obstacle on no side
ASIDE = math.radians(30)  # is turned where the step would be the one again that touched something
SAME = math.radians(20)  # between the headings of two such steps
BEFORE, BEYOND, WIDE = 0.4, 0.1, 0.08  # metres: from where a step leads to what was touched
LESS, LEAST, MORE = 8.0, 7.0, 10.0  # degrees: of a turn towards the target, and away from it
LITTLE = 16.0  # degrees; a larger turn away is large enough
TOUCHES = 8  # that are remembered


@dataclass(frozen=True)
class Passing:
    """
    What is being passed.

    side: +1: it is on the left; 0: not known. touched: where, and which way, the robot went
    against something, the last times. blocked: the last decision saw the target, its way blocked.
    """

    side: int = 0
    touched: tuple[Pose, ...] = ()
    blocked: bool = False

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
        return _turn(-self.side_of(bearing) * ASIDE) if self.has_touched(place) else None

    def has_touched(self, place: Pose) -> bool:
        """Whether a step from here leads to where one, this way, ended against something."""
        return any(_leads_to(place, spot) for spot in self.touched)

    def keeping_off(
        self, action: Action, last: Action | None, bearing: float, clear: bool | None
    ) -> Action | None:
        """Return the turn to make instead of one that may lead along something; None: as it is."""
        if not action.is_turn or last is None:
            return None
        is_towards = action.angle_rad * bearing > 0
        turned_away = last.is_turn and last.kind is not action.kind
        walked_past = bool(last.distance_m) and self.blocked
        if clear and is_towards and (turned_away or walked_past):
            return Action(action.kind, max(action.amount - LESS, LEAST))
        if clear is False and not is_towards and abs(bearing) > SIDED and action.amount <= LITTLE:
            return Action(action.kind, action.amount + MORE)
        return None

    def side_of(self, bearing: float) -> int:
        """Return on which side of the robot something is, or most likely is: +1 is left."""
        return self.side or (1 if bearing > 0 else -1)


def _leads_to(place: Pose, spot: Pose) -> bool:
    """Whether a step straight on from here comes by a place, in about its direction."""
    dx, dy = spot.x - place.x, spot.y - place.y
    along = dx * math.cos(place.yaw) + dy * math.sin(place.yaw)
    across = dy * math.cos(place.yaw) - dx * math.sin(place.yaw)
    is_by = -BEYOND < along < BEFORE and abs(across) < WIDE
    return is_by and abs(wrap(spot.yaw - place.yaw)) < SAME


def _turn(angle: float) -> Action:
    kind = ActionKind.TURN_LEFT if angle > 0 else ActionKind.TURN_RIGHT
    return Action(kind, round(abs(math.degrees(angle))))

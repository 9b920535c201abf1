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

"""What an exploration policy is given, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
import enum
import math

from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.exploring.floor_reading import FloorPicture
from spec_vlm_nav.language.actions import Action, ActionKind, ahead_clear, sees_target
from spec_vlm_nav.language.sightings import Sighting, sighting_of


class ActionSource(enum.Enum):
    """Whose action it is."""

    MODEL = "MODEL"
    EXPLORATION = "EXPLORATION"


@dataclass(frozen=True)
class Observation:
    """What the policy knows at one decision."""

    proposed: Action  # what the model said
    sees_target: bool | None  # what its reasoning said; None: it said neither
    contact: bool = False  # the motion before this decision ended against something
    ahead_clear: bool | None = None  # what its reasoning said of the way ahead; None: nothing
    sighting: Sighting | None = None  # where its reasoning said that the target is
    place: Pose | None = None  # by odometry, in a frame of its own; None: not known
    look: FloorPicture | None = None  # the picture that the answer is about; None: not to be looked at

    @staticmethod
    def from_answer(
        text: str,
        proposed: Action,
        contact: bool,
        place: Pose | None,
        look: FloorPicture | None = None,
    ) -> Observation:
        """Return what an answer, its action and the robot itself tell."""
        sees, clear, sighting = sees_target(text), ahead_clear(text), sighting_of(text)
        return Observation(proposed, sees, contact, clear, sighting, place, look)


@dataclass(frozen=True)
class Move:
    """What to do, whose idea it is, and by which rule ("" for the model's own)."""

    action: Action
    source: ActionSource
    rule: str = ""


def turn_by(angle: float) -> Action:
    """Return a turn by so many radians, left positive, in whole degrees."""
    kind = ActionKind.TURN_LEFT if angle > 0 else ActionKind.TURN_RIGHT
    return Action(kind, round(abs(math.degrees(angle))))

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

"""Inputs and outputs of an exploration policy."""

from __future__ import annotations

from dataclasses import dataclass
import math

from spec_vlm_nav.common.codes import ActionSource
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.exploring.floor_reading import FloorPicture
from spec_vlm_nav.language.actions import Action, ActionKind, ahead_clear, sees_target
from spec_vlm_nav.language.sightings import Sighting, sighting_of


@dataclass(frozen=True)
class Observation:
    """The policy's input at one decision."""

    proposed: Action  # the model's action
    sees_target: bool | None  # by the model's reasoning; None: it does not say
    contact: bool = False  # the previous motion ended at an obstacle
    ahead_clear: bool | None = None  # by the model's reasoning; None: it does not say
    sighting: Sighting | None = None  # the target's position by the model's reasoning
    place: Pose | None = None  # by odometry, relative to the start; None: unknown
    look: FloorPicture | None = None  # the decision's picture; None: the policy does not use it

    @staticmethod
    def from_answer(
        text: str,
        proposed: Action,
        contact: bool,
        place: Pose | None,
        look: FloorPicture | None = None,
    ) -> Observation:
        """Build the observation from an answer, its action, and the robot's state."""
        sees, clear, sighting = sees_target(text), ahead_clear(text), sighting_of(text)
        return Observation(proposed, sees, contact, clear, sighting, place, look)


@dataclass(frozen=True)
class Move:
    """The chosen action, who decided it, and by which rule ("" for the model's own)."""

    action: Action
    source: ActionSource
    rule: str = ""


def turn_by(angle: float) -> Action:
    """Return a turn by an angle in radians, left positive, rounded to whole degrees."""
    kind = ActionKind.TURN_LEFT if angle > 0 else ActionKind.TURN_RIGHT
    return Action(kind, round(abs(math.degrees(angle))))

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
What is known of the robot's motion at this moment.

It is put together from what the robot's nodes say.

Free of ROS. It only listens: a board that is wrong or late cannot move anything. Times are of a
steady clock, seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from spec_vlm_nav.common.geometry import Motion, NO_MOTION
from spec_vlm_nav.common.status import Status, UNDER_WAY

STATUS_SILENT_S = 1.5  # motion_node reports twice a second at least


@dataclass(frozen=True)
class ShownCommand:
    """
    A motion command as it is shown.

    source: MODEL, EXPLORATION or SUPERVISOR; text: "turn left 30".
    """

    session: int
    sequence: int
    moves: bool
    motion: Motion = NO_MOTION
    text: str = ""
    source: str = "SUPERVISOR"
    unverified: bool = False
    deadline_s: float = 0.0


@dataclass(frozen=True)
class BoardScene:
    """
    What the page says.

    `motion` is None unless the robot carries one out.
    """

    action: str = ""
    decided_by: str = ""
    state: str = ""
    unverified: bool = False
    motion: Motion | None = None


class Board:
    """Takes what is heard, answers with the scene of now."""

    def __init__(self) -> None:
        self._told: ShownCommand | None = None
        self._told_at = 0.0
        self._status: Status | None = None
        self._status_at = 0.0

    def on_command(self, told: ShownCommand, now: float) -> None:
        """Take note of a command that was sent to motion_node."""
        self._told, self._told_at = told, now

    def on_status(self, status: Status, now: float) -> None:
        """motion_node said where it stands."""
        self._status, self._status_at = status, now

    def under_way(self, now: float) -> ShownCommand | None:
        """
        Return the command that is being carried out now.

        None if there is none or motion_node has fallen silent.
        """
        told, status = self._told, self._status
        if told is None or not told.moves or now - self._told_at > told.deadline_s:
            return None
        if status is None or (status.session, status.sequence) != (told.session, told.sequence):
            # Not taken up yet; a status lost or late does not keep an arrow standing.
            return told if now - self._told_at < STATUS_SILENT_S else None
        if status.state not in UNDER_WAY or now - self._status_at > STATUS_SILENT_S:
            return None
        return told

    def scene(self, now: float) -> BoardScene:
        """Everything, as of now."""
        told, moving = self._told, self.under_way(now)
        scene = BoardScene(state=self._state(now))
        if told is None:
            return scene
        return replace(
            scene,
            action=told.text,
            decided_by=told.source.lower(),
            unverified=told.unverified,
            motion=moving.motion if moving is not None else None,
        )

    def _state(self, now: float) -> str:
        if self._status is None:
            return ""
        if now - self._status_at > STATUS_SILENT_S:
            return "motion_node is silent"
        name = self._status.state.name.replace("_", " ")
        reason = self._status.reason
        if not reason or (self._told is not None and reason == self._told.text):
            return name
        return f"{name}: {reason}"

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
The robot's motion under way and its path so far, from the messages of its nodes.

Free of ROS. It only listens: a wrong or late board cannot move anything. Times are seconds of a
steady clock; poses are in the odometry frame, metres and radians.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.common.status import Status, UNDER_WAY
from spec_vlm_nav.motion.command import Command, CommandKind

STATUS_SILENT_S = 1.5  # motion_node reports at least twice a second
JUMP_M = 1.0  # a larger step between two poses means that odometry was reset: a new path begins


class Board:
    """Records commands and status reports, and returns the motion under way."""

    def __init__(self) -> None:
        self._command: Command | None = None
        self._by, self._given_at = "", 0.0
        self._status: Status | None = None
        self._status_at = 0.0

    def on_command(self, command: Command, by: str, now: float) -> None:
        """Record a command sent to motion_node; by: who decided it."""
        self._command, self._by, self._given_at = command, by, now

    def on_status(self, status: Status, now: float) -> None:
        """Record a status report of motion_node."""
        self._status, self._status_at = status, now

    def under_way(self, now: float) -> Command | None:
        """
        Return the command that is being carried out now.

        None if there is none or motion_node is silent.
        """
        given, status = self._command, self._status
        if given is None or given.kind is not CommandKind.MOVE:
            return None
        if now - self._given_at > given.deadline_s:
            return None
        if status is None or (status.session, status.sequence) != (given.session, given.sequence):
            # Not reported yet; after STATUS_SILENT_S the status counts as lost.
            return given if now - self._given_at < STATUS_SILENT_S else None
        if status.state not in UNDER_WAY or now - self._status_at > STATUS_SILENT_S:
            return None
        return given

    def told(self, now: float) -> dict[str, Any]:
        """Return the last command for a page; its motion only while it is carried out."""
        given = self._command
        if given is None:
            return {"action": "", "by": "", "unverified": False}
        told: dict[str, Any] = {
            "action": given.text or given.kind.name.lower(),
            "by": self._by,
            "unverified": given.unverified,
        }
        if self.under_way(now) is not None:
            told["motion"] = (given.motion.distance_m, given.motion.angle_rad)
        return told


class Trail:
    """The thinned path: one pose every `spacing_m`, the newest `length` of them."""

    def __init__(self, spacing_m: float, length: int) -> None:
        self._spacing_m = spacing_m
        self._stops: deque[Pose] = deque(maxlen=length)
        self._last: Pose | None = None

    def add(self, pose: Pose) -> bool:
        """Add a pose; returns whether the path has changed."""
        if not pose.is_finite:
            return False
        if self._last is not None and self._last.distance(pose) > JUMP_M:
            self._stops.clear()
        self._last = pose
        if self._stops and self._stops[-1].distance(pose) < self._spacing_m:
            return False
        self._stops.append(pose)
        return True

    def __len__(self) -> int:
        return len(self._stops)

    def __iter__(self) -> Iterator[Pose]:
        return iter(self._stops)

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

"""A motion command's status as reported by motion_node. The fields correspond to MotionStatus.msg."""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION

UNDER_WAY = (MotionState.MOVING, MotionState.SETTLING)
GOING_ON = (MotionState.IDLE, *UNDER_WAY)  # a motion that has not ended
WATCHDOG_STATES = frozenset({
    MotionState.STALE_ODOM, MotionState.COLLISION_AHEAD, MotionState.STALE_CAMERA, MotionState.LINK_LOST,
    MotionState.SUPERVISOR_LOST, MotionState.NO_RESPONSE, MotionState.WRONG_RESPONSE,
    MotionState.UNCOMMANDED_MOTION, MotionState.STALE_SENSOR, MotionState.NOT_READY,
})  # fmt: skip
"""States in which a watchdog ends a motion: an input is missing or wrong, or the way is blocked."""


@dataclass(frozen=True)
class Status:
    """
    One report: the command, its state, and the reason.

    `done` and `left` are the parts of the motion covered and still to cover, by odometry.
    """

    state: MotionState
    session: int = 0
    sequence: int = 0
    reason: str = ""
    done: Motion = NO_MOTION
    left: Motion = NO_MOTION
    unverified: bool = False
    standing: bool = False
    estopped: bool = False
    held_by: str = ""
    rear_free_m: float = 0.0
    since: float = 0.0  # s, by the clock of motion_node's stamps; 0: unknown

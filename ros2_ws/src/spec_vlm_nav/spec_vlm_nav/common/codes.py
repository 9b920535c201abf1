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
All numeric codes that appear in ROS messages, declared once.

The constants in the .msg and .action files of spec_vlm_nav_interfaces are for external programs;
this package reads these enums. tests/robot/test_codes.py checks that both agree.
"""

from __future__ import annotations

import enum


class ErrorCode(enum.Enum):
    """Why a decision failed or an instruction ended (DecisionMetrics, NavigateInstruction)."""

    NONE = 0  # success: the model said that it is done, and the robot stands
    CANCELED = 1  # by a client, the stop topic or service, or another goal
    TIMEOUT = 2
    STALE_CAMERA = 3
    STALE_ODOM = 4
    LINK_LOST = 5
    PARSE_FAILED = 6  # an answer without an action, or too many of them in a row
    COLLISION_AHEAD = 7  # something stayed in the way
    INVALID_INPUT = 8  # the instruction or the frame cannot be used
    INTERNAL = 9
    NO_RESPONSE = 10  # the base or its odometry did not respond to commands
    WRONG_RESPONSE = 11  # the measured motion differs from the commanded one
    UNCOMMANDED_MOTION = 12  # the robot was moved by something else
    BLOCKED = 13  # an obstacle stopped the robot repeatedly
    REFUSED = 14  # motion_node kept refusing the motions
    ESTOPPED = 15
    GEOFENCE = 16
    TOO_FAR = 17
    TOO_MANY_DECISIONS = 18
    STALE_SENSOR = 19  # the forward-looking obstacle sensor
    NOT_READY = 20  # the robot itself cannot move: lying, fallen, battery low


class MotionState(enum.Enum):
    """State of a motion command (MotionStatus)."""

    IDLE = 0  # nothing accepted yet
    MOVING = 1
    REACHED = 2  # done within tolerance, standing still
    STOPPED = 3  # standing still as asked (STOP or HOLD)
    BLOCKED = 4  # commanded, but the robot no longer moves, or slides aside: an obstacle holds it
    EXPIRED = 5  # the deadline or the timeout passed first
    REFUSED = 6
    STALE_ODOM = 7
    SETTLING = 8  # within tolerance, waiting for the base to stand still
    COLLISION_AHEAD = 9
    STALE_CAMERA = 10
    LINK_LOST = 11
    SUPERVISOR_LOST = 12  # no messages from the navigator
    NO_RESPONSE = 13
    WRONG_RESPONSE = 14
    UNCOMMANDED_MOTION = 15
    ESTOPPED = 16
    GEOFENCE = 17
    STALE_SENSOR = 18
    NOT_READY = 19


class Verification(enum.Enum):
    """Whether the target model verified an action (DecisionMetrics)."""

    VERIFIED = 0
    UNVERIFIED = 1
    CONFIRMED = 2
    ROLLED_BACK = 3


class LinkState(enum.Enum):
    """State of the link to the verifier (Supervision, feedback of NavigateInstruction)."""

    UNKNOWN = 0
    UP = 1
    LOST = 2


class ActionSource(enum.Enum):
    """Who decided an action (MotionCommand, DecisionMetrics)."""

    MODEL = 0
    EXPLORATION = 1
    SUPERVISOR = 2  # vlm_nav_node itself, or a mission


UNVERIFIED = "[unverified] "
"""Prefix of text that only the draft model produced, on ~/reasoning and ~/action."""

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
From ROS messages to the records of the console's board.

Nothing is decided here.
"""

from __future__ import annotations

from spec_vlm_nav.common.codes import SOURCES
from spec_vlm_nav.console.board import ShownCommand
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.ros.convert.messages import command_of
from spec_vlm_nav_interfaces.msg import MotionCommand

_SOURCES = {number: name for name, number in SOURCES.items()}


def told_of(message: MotionCommand) -> ShownCommand | None:
    """Return a motion command as it is shown, or None when its kind is unknown."""
    command = command_of(message)
    if command is None:
        return None
    return ShownCommand(
        session=command.session,
        sequence=command.sequence,
        moves=command.kind is CommandKind.MOVE,
        motion=command.motion,
        text=command.text or command.kind.name.lower(),
        source=_SOURCES.get(message.source, "SUPERVISOR"),
        unverified=command.unverified,
        deadline_s=command.deadline_s,
    )

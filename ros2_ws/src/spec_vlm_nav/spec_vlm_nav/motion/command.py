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

"""Motion commands as received by motion_node: plain records."""

from __future__ import annotations

from dataclasses import dataclass
import enum

from spec_vlm_nav.common.geometry import Motion, NO_MOTION

OPERATOR_STOP = "stopped by the operator"
SILENT = "nothing heard from the navigator"


class CommandKind(enum.Enum):
    """STOP latches until the next instruction; HOLD only stands still; MOVE moves."""

    STOP = 0
    HOLD = 1
    MOVE = 2


@dataclass(frozen=True)
class Command:
    """A motion command as received (see MotionCommand.msg)."""

    kind: CommandKind
    session: int
    instruction: int
    sequence: int
    motion: Motion = NO_MOTION
    deadline_s: float = 0.0  # from receipt
    frame_age_s: float = 0.0
    text: str = ""
    unverified: bool = False

    @property
    def is_backward(self) -> bool:
        """Whether this drives backward, where most sensors do not look."""
        return self.kind is CommandKind.MOVE and self.motion.distance_m < 0

    @property
    def is_forward(self) -> bool:
        """Whether this drives forward, where the collision sensor looks."""
        return self.kind is CommandKind.MOVE and self.motion.distance_m > 0

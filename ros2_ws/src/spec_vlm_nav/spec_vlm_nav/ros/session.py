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
The session of a sender of motion commands: session number, sequence numbers and proof.

Every sender uses it: vlm_nav_node and the courses of mission_node.
"""

from __future__ import annotations

import secrets

from spec_vlm_nav.common.nonces import NonceChain
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision

RESERVE = 4096  # with fewer nonces left, the next instruction begins a new session


class CommandSession:
    """One session at a time; sequence numbers continue over sessions."""

    def __init__(self) -> None:
        self.sequence = 0  # of the last command
        self.begin()

    def begin(self) -> None:
        """Begin a new session: for motion_node it ends everything of the old one."""
        # Replaced atomically: a heartbeat from another thread must never pair one session's number
        # with another's commitment, which motion_node would treat as two senders.
        self._current = (secrets.randbits(63) | 1, NonceChain())

    @property
    def number(self) -> int:
        """The session's number."""
        return self._current[0]

    @property
    def is_nearly_used_up(self) -> bool:
        """Whether a new session should begin before the next instruction."""
        return self._current[1].left < RESERVE

    def sign(self, command: MotionCommand) -> MotionCommand:
        """Sign a command and give it the session's next number."""
        number, chain = self._current
        self.sequence += 1
        command.session, command.sequence = number, self.sequence
        command.nonce = list(chain.take())
        return command

    def introduce(self, life: Supervision) -> Supervision:
        """Add the session and its commitment to a heartbeat, so that commands can be proven."""
        number, chain = self._current
        life.session, life.commitment = number, list(chain.commitment)
        return life

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
The identity of the node that asks motion_node for motions: session, sequence numbers, proof.

All that sends motion commands, the deciding node and a mission's turns, does it through this.
"""

from __future__ import annotations

import secrets

from spec_vlm_nav.common.nonces import NonceChain
from spec_vlm_nav_interfaces.msg import MotionCommand, Supervision

RESERVE = 4096  # an instruction that begins with fewer nonces left gets a session of its own


class CommandSession:
    """One session at a time; sequence numbers go on from one to the next."""

    def __init__(self) -> None:
        self.sequence = 0  # of the last command
        self.begin()

    def begin(self) -> None:
        """Take a fresh session: it tells motion_node that what was before is over."""
        # Replaced as one: a sign of life from another thread never pairs one's number with
        # another's commitment, which motion_node would take for two senders.
        self._current = (secrets.randbits(63) | 1, NonceChain())

    @property
    def number(self) -> int:
        """The session's number."""
        return self._current[0]

    @property
    def is_nearly_used_up(self) -> bool:
        """Whether another session should begin before the next instruction."""
        return self._current[1].left < RESERVE

    def sign(self, command: MotionCommand) -> MotionCommand:
        """Make a command the session's next one."""
        number, chain = self._current
        self.sequence += 1
        command.session, command.sequence = number, self.sequence
        command.nonce = list(chain.take())
        return command

    def introduce(self, life: Supervision) -> Supervision:
        """Make a sign of life the session's, so that its commands will be known."""
        number, chain = self._current
        life.session, life.commitment = number, list(chain.commitment)
        return life

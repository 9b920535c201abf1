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
Proof that a command comes from the session it names: numbers that only its sender knows.

A session's sender makes a secret and hashes it again and again. It says the last hash with its
signs of life, the commitment, and with each command the one before the last said. The one that has
heard all of it can check a command and cannot make the next one. One hash is good for one command:
said again it proves nothing.
"""

from __future__ import annotations

from enum import Enum
import hashlib
import math
import secrets

SIZE = 32  # bytes, as in MotionCommand.msg and Supervision.msg
NOTHING = bytes(SIZE)
LENGTH = 16_384  # commands of one session
SHORT_WALK = 64  # hashes that are tried for every message
WALK_EVERY_S = 1.0  # how often as many are tried as a chain is long: some 10 ms


class ChainPosition(Enum):
    """Where in a session's chain a hash is that has no number."""

    FOREIGN = "not in it"
    UNKNOWN = "not found, and not looked for to the end"


def following(nonce: bytes) -> bytes:
    """Return the hash that was said before this one."""
    return hashlib.sha256(nonce).digest()


class NonceChain:
    """The sender's side."""

    def __init__(self, secret: bytes | None = None, length: int = LENGTH) -> None:
        nonce = secret if secret is not None else secrets.token_bytes(SIZE)
        self._left = [nonce]
        for _ in range(length):
            self._left.append(following(self._left[-1]))
        self._commitment = self._left.pop()

    @property
    def commitment(self) -> bytes:
        """Return what was said last, known to every node."""
        return self._commitment

    @property
    def left(self) -> int:
        """How many commands can still be proven."""
        return len(self._left)

    def take(self) -> bytes:
        """Return the nonce of the next command; NOTHING when all are used up."""
        if not self._left:
            return NOTHING
        self._commitment = self._left.pop()
        return self._commitment


class SessionProof:
    """
    The receiver's side, for one session.

    It knows the place in the chain of every hash it has met: how many commands after the first
    commitment. A hash it has not met is hashed until a known one comes, usually at once. After a
    flood of commands most of which were lost, thousands of steps may lie between: so long a walk
    is made at most once in WALK_EVERY_S, because a forger's hash costs all of it.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._last = 0  # the place of the last command that was proven
        self._walk_from = -math.inf  # when the next long walk may be made
        self._disputed = False

    def hear(self, commitment: bytes, now: float) -> None:
        """
        Take note of a commitment; the first one holds.

        One that belongs to another secret shows that two senders use the session: then neither
        is believed any more.
        """
        if commitment == NOTHING:
            return
        if not self._places:
            for place in range(SHORT_WALK + 1):
                self._places[commitment] = -place
                commitment = following(commitment)
        elif self._find(commitment, now) is ChainPosition.FOREIGN:
            self._disputed = True

    def objection(self, nonce: bytes, now: float) -> str:
        """Return why a command with this nonce is not the session's, or ""; uses it up."""
        if self._disputed:
            return "two senders say that the session is theirs"
        if not self._places:
            return "its session has not said by what its commands are known"
        place = self._find(nonce, now)
        if not isinstance(place, int) or place <= self._last:
            return "its nonce is not the next of its session"
        self._last = place
        return ""

    def _find(self, value: bytes, now: float) -> int | ChainPosition:
        """Return the place of a hash in the chain."""
        met: list[bytes] = []
        steps = LENGTH if now >= self._walk_from else SHORT_WALK
        while value not in self._places:
            if len(met) == steps:
                return ChainPosition.FOREIGN if steps == LENGTH else ChainPosition.UNKNOWN
            met.append(value)
            value = following(value)
            if len(met) == SHORT_WALK and steps == LENGTH:
                self._walk_from = now + WALK_EVERY_S
        place = self._places[value]
        for value in reversed(met):
            place += 1
            self._places[value] = place
        return place

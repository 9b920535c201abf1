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
Proof that a command comes from the session it names: a hash chain that only the sender knows.

The sender hashes a secret many times. It publishes the last hash, the commitment, with its
heartbeats. Each command carries the hash before the one published last. A listener can check a
command but cannot compute the next hash. Each hash is valid for one command.
"""

from __future__ import annotations

from enum import Enum
import hashlib
import math
import secrets

SIZE = 32  # bytes, as in MotionCommand.msg and Supervision.msg
NOTHING = bytes(SIZE)
LENGTH = 16_384  # commands of one session
SHORT_WALK = 64  # hashing steps tried for every message
WALK_EVERY_S = 1.0  # how often a search of LENGTH steps is allowed; it takes about 10 ms


class ChainPosition(Enum):
    """Why a hash has no known place in a session's chain."""

    FOREIGN = "not in it"
    UNKNOWN = "not found, and not looked for to the end"


def following(nonce: bytes) -> bytes:
    """Return the hash of `nonce`, which the sender published before it."""
    return hashlib.sha256(nonce).digest()


class NonceChain:
    """The sender's side."""

    def __init__(self, length: int = LENGTH) -> None:
        self._left = [secrets.token_bytes(SIZE)]
        for _ in range(length):
            self._left.append(following(self._left[-1]))
        self._commitment = self._left.pop()

    @property
    def commitment(self) -> bytes:
        """Return the hash published last, known to every node."""
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

    It stores the place of every hash seen, counted in commands after the first commitment. An
    unseen hash is hashed until a known one is reached, usually in one step. After many lost
    commands that may take thousands of steps. Such a long search runs at most once in WALK_EVERY_S,
    because a forged hash always costs the full search.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._last = 0  # the place of the last command that was proven
        self._walk_from = -math.inf  # when the next long walk may be made
        self._disputed = False

    def hear(self, commitment: bytes, now: float) -> None:
        """
        Record a commitment; the first one counts.

        A commitment of another chain shows that two senders use the session. From then on every
        command of the session is refused.
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
        """Return why this nonce is refused, or "" if it is valid; a valid nonce is used up."""
        if self._disputed:
            return "two senders say that the session is theirs"
        if not self._places:
            return "no commitment of its session was received"
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

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
signs of life, the commitment, and with each command the one before the last said. Whoever has
heard all of it can check a command and cannot make the next one. One hash is good for one command:
said again it proves nothing.
"""

from __future__ import annotations

import hashlib
import secrets

SIZE = 32  # bytes, as in MotionCommand.msg and Supervision.msg
NOTHING = bytes(SIZE)
LENGTH = 16_384  # commands of one session
MOST_MISSED = 64  # commands in a row that may be lost on the way


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
        """Return what was said last, known to everybody."""
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


def follows(nonce: bytes, known: bytes) -> bool:
    """Return whether a nonce is one of the next that may be said after a known one."""
    for _ in range(MOST_MISSED):
        nonce = following(nonce)
        if nonce == known:
            return True
    return False


class SessionProof:
    """The receiver's side, for one session."""

    def __init__(self) -> None:
        self._known = b''
        self._disputed = False

    def hear(self, commitment: bytes) -> None:
        """
        Take note of a commitment; the first one holds.

        One that belongs to another secret shows that two senders use the session: then neither
        is believed any more.
        """
        if commitment == NOTHING:
            return
        if not self._known:
            self._known = commitment
        elif commitment != self._known and not (
            follows(commitment, self._known) or follows(self._known, commitment)
        ):
            self._disputed = True

    def objection(self, nonce: bytes) -> str:
        """Return why a command with this nonce is not the session's, or ""; uses it up."""
        if self._disputed:
            return 'two senders say that the session is theirs'
        if not self._known:
            return 'its session has not said by what its commands are known'
        if not follows(nonce, self._known):
            return 'its nonce is not the next of its session'
        self._known = nonce
        return ''

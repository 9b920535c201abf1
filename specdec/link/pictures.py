# SPDX-License-Identifier: Apache-2.0
"""Pictures by content: their names on the wire, and which pictures an edge may name instead of sending them again.

Names are not trusted: the verifier computes the digest of each picture itself, and looks names up only among the
pictures of the same client (cloud_verifier.net.pictures).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

from specdec.errors import ProtocolError
from specdec.link.wire import Open, Picture, Welcome

_BESIDE = 1024
"""Extra bytes counted per kept picture, so that millions of tiny pictures cannot evade the bound."""


def digest_of(picture: bytes) -> bytes:
    """SHA-256 of an encoded picture, 32 bytes."""
    return sha256(picture).digest()


def kept_bytes(picture: bytes) -> int:
    """Bytes that a kept picture counts against a bound."""
    return len(picture) + _BESIDE


def pictures_of(message: Open) -> tuple[bytes, ...]:
    """The encoded pictures of a message. Pictures sent by name must have been filled in."""
    return tuple(one if isinstance(one, bytes) else one.data for one in message.images)


class KnownPictures:
    """The pictures that one verifier has confirmed to hold for this edge.

    It evicts like the verifier: least recently used first, beyond the bytes that the verifier reports to keep. If the
    two differ, the verifier asks for the pictures it lacks.
    """

    def __init__(self) -> None:
        self._verifier: tuple[int, bytes] | None = None
        self._most = 0
        self._bytes = 0
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._told: list[tuple[bytes, int]] = []
        self._names_some = False
        self._missed = False

    def __len__(self) -> int:
        return len(self._known)

    def to_send(self, welcome: Welcome, pictures: Sequence[bytes]) -> list[bytes | Picture]:
        """What to send for the pictures of a prompt: contents of new pictures, names of known ones.

        Empty pictures, and pictures that the verifier would not keep, are sent as plain contents.
        """
        verifier = welcome.server, welcome.token
        if verifier != self._verifier:
            self.forget()
        self._verifier, self._most = verifier, welcome.allowed.picture_bytes
        self._told = []
        going: list[bytes | Picture] = []
        here = set(self._known)
        for picture in pictures:
            size = kept_bytes(picture)
            if size > self._most or not picture:
                going.append(picture)
                self._told.append((b"", 0))
                continue
            digest = digest_of(picture)
            going.append(Picture(digest, b"" if digest in here else picture))
            self._told.append((digest, size))
            here.add(digest)
        self._names_some = any(isinstance(one, Picture) and not one.data for one in going)
        return going

    def confirmed(self) -> None:
        """The verifier opened the session, so it has the pictures from the last `to_send`."""
        told, self._told, self._missed = self._told, [], False
        for digest, size in told:
            if digest:
                self._bytes += size - self._known.pop(digest, 0)
                self._known[digest] = size
        while self._bytes > self._most:
            self._bytes -= self._known.popitem(last=False)[1]

    def missing(self, which: Sequence[int]) -> None:
        """The verifier lacks pictures from the last `to_send`. which: their indices, from 0.

        If it lacks pictures twice in a row, or none of the indices was known, all pictures count as unknown. Raises
        ProtocolError if all contents were sent.
        """
        if not self._names_some:
            raise ProtocolError("the verifier asks for pictures that it was sent: report this as a bug")
        before = len(self._known)
        for place in which:
            if place < len(self._told):
                self._bytes -= self._known.pop(self._told[place][0], 0)
        if self._missed or len(self._known) == before:
            self.forget()
        self._missed = True

    def forget(self) -> None:
        """Forget all pictures."""
        self._known.clear()
        self._bytes = 0

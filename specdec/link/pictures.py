# SPDX-License-Identifier: Apache-2.0
"""Pictures by content: how one is named on the wire, and which ones an edge may name instead of sending them again.

Nothing trusts a name: the verifier works out the digest of what it is sent itself, and looks a name up only among the
pictures of the client that says it (cloud_verifier.net.pictures).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256

from specdec.errors import ProtocolError
from specdec.link.wire import Open, Picture, Welcome

_BESIDE = 1024
"""Bytes that a kept picture counts beside its own, so that millions of empty ones are no way around a bound."""


def digest_of(picture: bytes) -> bytes:
    """SHA-256 of an encoded picture, 32 bytes."""
    return sha256(picture).digest()


def kept_bytes(picture: bytes) -> int:
    """What a picture counts where it is kept."""
    return len(picture) + _BESIDE


def pictures_of(message: Open) -> tuple[bytes, ...]:
    """The encoded pictures of a message that names none, or of which the named ones were put in."""
    return tuple(one if isinstance(one, bytes) else one.data for one in message.images)


class KnownPictures:
    """Which pictures one verifier has confirmed that it has of this edge.

    It forgets as the verifier does: what was used longest ago first, beyond the bytes that the verifier says it keeps.
    Where the two differ the verifier asks for what it lacks.
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
        """What goes up for the pictures of a prompt: the contents of those that are new, and names for the others.

        A verifier that keeps none gets contents alone, and so does one that would not keep them.
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
        """The verifier has what `of` last made: it opened the session."""
        told, self._told, self._missed = self._told, [], False
        for digest, size in told:
            if digest:
                self._bytes += size - self._known.pop(digest, 0)
                self._known[digest] = size
        while self._bytes > self._most:
            self._bytes -= self._known.popitem(last=False)[1]

    def missing(self, which: Sequence[int]) -> None:
        """The verifier lacks these of the pictures that `of` last made something of, counted from 0.

        When it lacks some again, or none that can be, nothing counts as known. Raises ProtocolError where it was sent
        them all.
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
        """Nothing is known any more."""
        self._known.clear()
        self._bytes = 0

# SPDX-License-Identifier: Apache-2.0
"""Pictures that clients may name instead of sending them again, separately for each client.

A name is looked up only among the client's own pictures. Knowing a digest does not prove that a client has the picture,
and whether another client has sent it stays private. Used only in the thread that owns the sockets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec.errors import ProtocolError
from specdec.link.pictures import digest_of, kept_bytes
from specdec.link.wire import Picture


@dataclass
class _ClientPictures:
    """One client's pictures, by digest, least recently used first."""

    pictures: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    bytes: int = 0
    used_s: float = 0.0

    def forget_one(self) -> int:
        """Forget the least recently used picture; returns its bytes."""
        size = kept_bytes(self.pictures.popitem(last=False)[1])
        self.bytes -= size
        return size


class PictureCache:
    """Encoded pictures by client and digest. bytes: in use. named, missing: pictures that were named, and not
    found.
    """

    def __init__(self, most_bytes: int, timeout_s: float, clock: Callable[[], float]) -> None:
        """most_bytes: for all clients together. timeout_s: pictures of a client are dropped when unused for
        this long.
        """
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._clock = clock
        self._clients: OrderedDict[bytes, _ClientPictures] = OrderedDict()  # least recently used first
        self.bytes = 0
        self.named = 0
        self.missing = 0

    def look_up(self, client: bytes, images: Sequence[bytes | Picture]) -> tuple[list[bytes], list[int]]:
        """The contents of a message's images, and the indices of those that are missing.

        Raises ProtocolError for contents that do not match their digest.
        """
        sent = {one.digest: one.data for one in images if isinstance(one, Picture) and one.data}
        if any(digest_of(data) != digest for digest, data in sent.items()):
            raise ProtocolError("an image does not match its digest")
        kept = self._clients.get(client, _ClientPictures()).pictures
        found: list[bytes] = []
        missing: list[int] = []
        for place, one in enumerate(images):
            if isinstance(one, bytes):
                found.append(one)
                continue
            self.named += not one.data
            data = one.data or sent.get(one.digest) or kept.get(one.digest)
            if data is None:
                missing.append(place)
            else:
                found.append(data)
        self.missing += len(missing)
        return found, missing

    def keep(
        self, client: bytes, images: Sequence[bytes | Picture], found: Sequence[bytes], most: int
    ) -> None:
        """Keep the images that a client sent for keeping or named. found: their contents. most: bound on this client's
        bytes.
        """
        wanted = [
            (one.digest, data) for one, data in zip(images, found, strict=True) if isinstance(one, Picture)
        ]
        wanted = [(digest, data) for digest, data in wanted if kept_bytes(data) <= most]
        if not wanted:
            return
        kept = self._clients.setdefault(client, _ClientPictures())
        self._clients.move_to_end(client)
        kept.used_s = self._clock()
        for digest, data in wanted:
            if digest not in kept.pictures:
                kept.pictures[digest] = data
                kept.bytes += kept_bytes(data)
                self.bytes += kept_bytes(data)
            kept.pictures.move_to_end(digest)
        while kept.bytes > most:
            self.bytes -= kept.forget_one()
        while self.bytes > self._most_bytes:
            self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        client, kept = next(iter(self._clients.items()))
        self.bytes -= kept.forget_one()
        if not kept.pictures:
            del self._clients[client]

    def expire(self) -> None:
        """Forget the pictures of clients that have not used them for long."""
        while self._clients:
            client, kept = next(iter(self._clients.items()))
            if self._clock() - kept.used_s <= self._timeout_s:
                return
            self.bytes -= kept.bytes
            del self._clients[client]

"""Replies on their way out: what ZeroMQ does not take waits here, so much for each client and no more.

A client that does not read holds up nobody but itself: once more waits for it than it may have, its sessions stand
still until it has read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

RETRY_S = 0.02
"""ZeroMQ does not tell when one of many clients has read: it is tried so often."""
_OVERHEAD = 100
"""Bytes that a waiting reply takes beside its own."""
_OVERFLOW = 2
"""Replies that nobody needs are dropped beyond so many times what a client may have."""

Send = Callable[[bytes, bytes], bool]
"""Hands one reply to ZeroMQ: (identity, payload) -> whether it took it. Raises ClientGone."""


class ClientGone(Exception):
    """The client has no connection any more."""


@dataclass
class _Waiting:
    since_s: float
    payloads: deque[bytes] = field(default_factory=deque)
    size: int = 0
    full: bool = False


class Outbox:
    """Replies by client, in order. Times are seconds of the clock."""

    def __init__(
        self, send: Send, on_full: Callable[[bytes, bool], None], clock: Callable[[], float]
    ) -> None:
        """on_full: called with (identity, True) when too much waits for a client, with False when it has read."""
        self._send = send
        self._on_full = on_full
        self._clock = clock
        self._waiting: dict[bytes, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, identity: bytes, payload: bytes, limit: int, needed: bool) -> None:
        """Send a reply now or later. limit: bytes that may wait for this client. needed: it is never dropped.

        Raises ClientGone.
        """
        waiting = self._waiting.get(identity)
        if waiting is None:
            if self._send(identity, payload):
                return
            waiting = self._waiting[identity] = _Waiting(self._clock())
        if not needed and waiting.size > _OVERFLOW * limit:
            return
        waiting.payloads.append(payload)
        waiting.size += len(payload) + _OVERHEAD
        if waiting.size > limit and not waiting.full:
            waiting.full = True
            self._on_full(identity, True)

    def full(self, identity: bytes) -> bool:
        """Whether more waits for a client than it may have."""
        waiting = self._waiting.get(identity)
        return waiting is not None and waiting.full

    def flush(self) -> list[bytes]:
        """Hand over what is taken by now; returns the clients that are gone."""
        gone = []
        for identity, waiting in list(self._waiting.items()):
            try:
                while waiting.payloads and self._send(identity, waiting.payloads[0]):
                    waiting.size -= len(waiting.payloads.popleft()) + _OVERHEAD
                    waiting.since_s = self._clock()
            except ClientGone:
                gone.append(identity)
                continue
            if not waiting.payloads:
                del self._waiting[identity]
                if waiting.full:
                    self._on_full(identity, False)
        return gone

    def stuck(self, timeout_s: float) -> list[bytes]:
        """Clients that have read nothing for so long."""
        now = self._clock()
        return [identity for identity, one in self._waiting.items() if now - one.since_s > timeout_s]

    def drop(self, identity: bytes) -> None:
        """A client is gone, with what waits for it."""
        waiting = self._waiting.pop(identity, None)
        if waiting is not None and waiting.full:
            self._on_full(identity, False)

# SPDX-License-Identifier: Apache-2.0
"""Tables of connected clients, open sessions and unsent replies, for the thread that owns the sockets.

A client is known by the identity of its connection, and by the token that it shows when it reconnects. Its bounds and
its message rate are kept with it. No models are held here. A client that does not read delays only itself: once more
replies wait for it than allowed, its sessions pause until it has read.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.limits import Limits, TokenBucket
from cloud_verifier.net.parts import DraftParts
from cloud_verifier.observing.counts import ClientUse, SessionUse
from cloud_verifier.security.records import DEFAULT_CLASS, ClientKey
from specdec.link.wire import TOKEN_BYTES

MOST_CLIENTS = 10_000
"""Clients without sessions that are remembered, so that connecting with ever new identities cannot fill memory."""


@dataclass
class Client:
    """One edge. token: the secret that identifies it after a reconnect. told: when it was last warned about its rate.

    key: the key that it has shown, None without keys. All connections of one key share its bucket, its use and its
    limits.
    """

    identity: bytes
    token: bytes
    limits: Limits
    bucket: TokenBucket
    heard: float
    use: ClientUse
    told: float = float("-inf")
    key: ClientKey | None = None

    @property
    def name(self) -> str:
        """The name of its key, "" without keys."""
        return "" if self.key is None else self.key.name

    @property
    def rank(self) -> int:
        """Rank of its class; 0 is served first."""
        return (DEFAULT_CLASS if self.key is None else self.key.client_class).rank

    @property
    def owner(self) -> bytes:
        """The unit that limits count against: its key, or its connection without keys."""
        return self.name.encode() or self.identity

    @property
    def lasting(self) -> bytes:
        """The unit that pictures are kept for: its key, or its token without keys."""
        return b"key " + self.name.encode() if self.name else b"token " + self.token


class Clients:
    """Clients by identity and by token, ordered by when they were last heard."""

    def __init__(self, limits: Limits, timeout_s: float, clock: Callable[[], float]) -> None:
        """limits: of clients without their own. timeout_s: silent clients without sessions are forgotten after
        this.
        """
        self._limits = limits
        self._timeout_s = timeout_s
        self._clock = clock
        self._clients: dict[bytes, Client] = {}
        self._identities: dict[bytes, bytes] = {}
        self._shared: dict[str, tuple[Limits, TokenBucket]] = {}
        self._anonymous = ClientUse()
        self._uses: dict[str, ClientUse] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def heard_of(self, identity: bytes) -> Client:
        """The client of a connection, created if unknown; updates when it was last heard."""
        now = self._clock()
        client = self._clients.pop(identity, None)
        if client is None:
            bucket = TokenBucket(self._limits.messages_per_s, self._limits.burst, self._clock)
            token = secrets.token_bytes(TOKEN_BYTES)
            client = Client(identity, token, self._limits, bucket, now, self._anonymous)
            self._identities[client.token] = identity
        client.heard = now
        self._clients[identity] = client
        return client

    def limits_of(self, identity: bytes) -> Limits:
        """The bounds of a client, which may be unknown."""
        client = self._clients.get(identity)
        return self._limits if client is None else client.limits

    def name_of(self, identity: bytes) -> str:
        """The name of a client's key; "" without one."""
        client = self._clients.get(identity)
        return "" if client is None else client.name

    def use_of(self, identity: bytes) -> ClientUse:
        """The statistics of a client, which may be unknown."""
        client = self._clients.get(identity)
        return self._anonymous if client is None else client.use

    def uses(self) -> list[ClientUse]:
        """Statistics of all clients since the start; from any thread."""
        return [self._anonymous, *self._uses.copy().values()]

    def know(self, identity: bytes, key: ClientKey) -> None:
        """Record the key that a client has shown: its name, class and bounds apply from now on."""
        client = self.heard_of(identity)
        client.key = key
        limits = key.quota.within(self._limits)
        shared = self._shared.get(key.name)
        if shared is None or shared[0] != limits:
            shared = limits, TokenBucket(limits.messages_per_s, limits.burst, self._clock)
            self._shared[key.name] = shared  # as many as there are keys
        client.limits, client.bucket = shared
        if key.name not in self._uses:
            self._uses[key.name] = ClientUse(key.name)
        client.use = self._uses[key.name]

    def resume(self, identity: bytes, token: bytes) -> bytes | None:
        """Give a reconnected client, which shows its previous token, its record back under the new identity.

        Returns the previous identity, whose sessions no connection serves any more. Returns None if the token is
        unknown, is the client's own, or was given to the holder of another key.
        """
        before = self._identities.get(token)
        if before is None or before == identity or self.name_of(before) != self.name_of(identity):
            return None
        client = self._clients.pop(before)
        self.forget(identity)
        client.identity = identity
        self._clients[identity] = client
        self._identities[token] = identity
        return before

    def forget(self, identity: bytes) -> None:
        """Remove a client that has gone."""
        client = self._clients.pop(identity, None)
        if client is not None:
            self._identities.pop(client.token, None)

    def expire(self, has_sessions: Callable[[bytes], bool]) -> None:
        """Forget clients without sessions that were silent for too long, or exceed MOST_CLIENTS."""
        now = self._clock()
        kept: list[bytes] = []
        for identity, client in self._clients.items():
            if now - client.heard <= self._timeout_s and len(self._clients) - len(kept) <= MOST_CLIENTS:
                break
            kept.append(identity)
        for identity in kept:
            if not has_sessions(identity):
                self.forget(identity)


WORKING_S = 5.0


@dataclass
class SessionEntry:
    """owner: who it counts against. use: its statistics. last_heard: when its client was heard. received, answered:
    highest round received and answered. streamed: length of the answer when tokens were last sent. worked_s: time of
    the engine's last reply. parts: the draft that is arriving in parts.
    """

    owner: bytes
    use: SessionUse
    last_heard: float
    received: int = 0
    answered: int = 0
    streamed: int = 0
    worked_s: float = float("-inf")
    parts: DraftParts = field(default_factory=DraftParts)


class SessionTable:
    """Sessions by key, with a maximum number and a timeout."""

    def __init__(self, max_sessions: int, timeout_s: float) -> None:
        self._max_sessions = max_sessions
        self._timeout_s = timeout_s
        self._entries: dict[SessionKey, SessionEntry] = {}
        self._of_client: dict[bytes, set[SessionKey]] = {}
        self._owned: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: SessionKey, owner: bytes, use: SessionUse) -> bool:
        """Open a session, or reopen it; False if the table is full. owner: who it counts against."""
        self.remove(key)
        if self.is_full:
            return False
        self._entries[key] = SessionEntry(owner, use, use.began_s)
        self._of_client.setdefault(key[0], set()).add(key)
        self._owned[owner] += 1
        return True

    def owned_by(self, owner: bytes) -> int:
        """Number of an owner's sessions, over all its connections."""
        return self._owned[owner]

    @property
    def is_full(self) -> bool:
        """True if no further session can be opened."""
        return len(self._entries) >= self._max_sessions

    def get(self, key: SessionKey) -> SessionEntry | None:
        """The session, or None if it is not known."""
        return self._entries.get(key)

    def remove(self, key: SessionKey) -> bool:
        """Forget a session; False if it was not known."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._owned[entry.owner] -= 1
        if not self._owned[entry.owner]:
            del self._owned[entry.owner]
        keys = self._of_client[key[0]]
        keys.discard(key)
        if not keys:
            del self._of_client[key[0]]
        return True

    def __iter__(self) -> Iterator[SessionKey]:
        return iter(self._entries)

    def late_with_parts(self, now: float) -> list[SessionKey]:
        """Sessions whose draft's next part is overdue."""
        return [key for key, one in self._entries.items() if one.parts.held and one.parts.is_late(now)]

    def of_client(self, identity: bytes) -> list[SessionKey]:
        """All sessions of one client."""
        return sorted(self._of_client.get(identity, ()))

    def working(self, now: float) -> int:
        """Sessions that the engine works on, or has worked on within WORKING_S; from any thread."""
        entries = list(self._entries.values())
        return sum(one.received > one.answered or now - one.worked_s < WORKING_S for one in entries)

    def clients(self) -> set[bytes]:
        """Every client that has a session."""
        return {identity for identity, _ in self._entries}

    def expired(self, now: float) -> list[SessionKey]:
        """Sessions that were silent for longer than the timeout."""
        return [key for key, entry in self._entries.items() if now - entry.last_heard > self._timeout_s]

    def next_expiry(self) -> float | None:
        """When the next session may expire, or None without sessions."""
        if not self._entries:
            return None
        return min(entry.last_heard for entry in self._entries.values()) + self._timeout_s


RETRY_S = 0.02
"""ZeroMQ does not report when one of many clients has read, so sending is retried this often."""
_OVERHEAD = 100
"""Bytes that a waiting reply takes besides its payload."""
_OVERFLOW = 2
"""Optional replies are dropped once this many times a client's limit wait for it."""

Send = Callable[[bytes, bytes], bool]
"""Hands one reply to ZeroMQ: (identity, payload) -> whether ZeroMQ took it. Raises ClientGone."""


class ClientGone(Exception):
    """The client is no longer connected."""


@dataclass
class _Waiting:
    since_s: float
    payloads: deque[bytes] = field(default_factory=deque)
    size: int = 0
    full: bool = False


class Outbox:
    """Unsent replies by client, in order. Times are in seconds of the clock."""

    def __init__(
        self, send: Send, on_full: Callable[[bytes, bool], None], clock: Callable[[], float]
    ) -> None:
        """on_full: called with (identity, True) when too much waits for a client, and with False when it has
        read it.
        """
        self._send = send
        self._on_full = on_full
        self._clock = clock
        self._waiting: dict[bytes, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, identity: bytes, payload: bytes, limit: int, needed: bool) -> None:
        """Send a reply now or later. limit: bytes that may wait for this client. needed: never drop it.

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
        """Whether more than allowed waits for a client."""
        waiting = self._waiting.get(identity)
        return waiting is not None and waiting.full

    def flush(self) -> list[bytes]:
        """Send what ZeroMQ takes by now; returns the clients that are gone."""
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
        """Clients that have read nothing for this long."""
        now = self._clock()
        return [identity for identity, one in self._waiting.items() if now - one.since_s > timeout_s]

    def drop(self, identity: bytes) -> None:
        """Discard the replies of a client that has gone."""
        waiting = self._waiting.pop(identity, None)
        if waiting is not None and waiting.full:
            self._on_full(identity, False)

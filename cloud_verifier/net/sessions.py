"""The server's table of sessions: who is there, when they were last heard of, and how far they are.

Owned by the thread that owns the sockets. Holds no models; decides only who is known, full, or forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cloud_verifier.engine.tasks import SessionKey
from cloud_verifier.observing.usage import SessionUse

WORKING_S = 5.0


@dataclass
class SessionEntry:
    """owner: whose it is. received, answered: highest round in and out. streamed: how long the answer was when tokens
    last left. worked_s: when the engine last said something. use: what it has used; None: nobody asks.
    """

    last_heard: float
    owner: bytes = b""
    received: int = 0
    answered: int = 0
    streamed: int = 0
    worked_s: float = float("-inf")
    use: SessionUse | None = None


class SessionTable:
    """Sessions by key, with a limit and a time-out."""

    def __init__(self, max_sessions: int, timeout_s: float) -> None:
        self._max_sessions = max_sessions
        self._timeout_s = timeout_s
        self._entries: dict[SessionKey, SessionEntry] = {}
        self._of_client: dict[bytes, set[SessionKey]] = {}
        self._owned: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: SessionKey, now: float, owner: bytes = b"", use: SessionUse | None = None) -> bool:
        """Open a session (again); False if the table is full. owner: who has it, the client unless told otherwise."""
        self.remove(key)
        if self.is_full:
            return False
        entry = SessionEntry(now, owner or key[0], use=use)
        self._entries[key] = entry
        self._of_client.setdefault(key[0], set()).add(key)
        self._owned[entry.owner] += 1
        return True

    def owned_by(self, owner: bytes) -> int:
        """How many sessions an owner has, over all its connections."""
        return self._owned[owner]

    @property
    def is_full(self) -> bool:
        """True where no further session may be opened."""
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

    def of_client(self, identity: bytes) -> list[SessionKey]:
        """All sessions of one client."""
        return sorted(self._of_client.get(identity, ()))

    def working(self, now: float) -> int:
        """Sessions that the engine works for, or has within WORKING_S; from any thread."""
        entries = list(self._entries.values())
        return sum(one.received > one.answered or now - one.worked_s < WORKING_S for one in entries)

    def clients(self) -> set[bytes]:
        """Everybody who has a session."""
        return {identity for identity, _ in self._entries}

    def expired(self, now: float) -> list[SessionKey]:
        """Sessions nobody mentioned for longer than the time-out."""
        return [key for key, entry in self._entries.items() if now - entry.last_heard > self._timeout_s]

    def next_expiry(self) -> float | None:
        """When the next session may expire, or None without sessions."""
        if not self._entries:
            return None
        return min(entry.last_heard for entry in self._entries.values()) + self._timeout_s

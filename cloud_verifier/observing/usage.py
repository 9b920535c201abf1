"""What each client and each session has used, in plain numbers that are read off when somebody asks.

Each number is written by one thread only, so that counting is an addition: no lock is taken and no text is made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cloud_verifier.logs import EventLog

ANONYMOUS = "anonymous"
"""Who comes without a key; where there are keys, whoever is not let in."""


@dataclass
class ClientUse:
    """Of all connections of one key since the verifier began; without keys, of everybody.

    Written by the thread of the sockets: messages and bytes each way; sessions that are open, that were opened, and of
    these how many brought the beginning of their answer along (after a lost link); reconnects: how often it came again
    with its token; refused: how often what, by the code of the error. By the engine's thread: tokens that verdicts and
    streams brought, draft tokens judged and accepted; ended: sessions that ended in an error, by its code.
    """

    name: str = ANONYMOUS
    messages_up: int = 0
    messages_down: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    sessions: int = 0
    opened: int = 0
    resumed: int = 0
    reconnects: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def refusals(self) -> Counter[str]:
        """How often what was refused, before or after a session was open; from any thread."""
        return Counter(self.refused.copy()) + Counter(self.ended.copy())


@dataclass
class SessionUse:
    """One session. id: no other has it. log: says in each line which session, and whose, it is about.

    Written by the engine's thread: rounds (replies with tokens), tokens, draft tokens judged and accepted, microseconds
    of work and of waiting, and the code of the error that it ended with, if any. By the thread of the sockets: bytes.
    """

    id: str
    log: EventLog
    client: ClientUse = field(default_factory=ClientUse)
    began_s: float = 0.0
    rounds: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    verify_us: int = 0
    queue_us: int = 0
    error: str = ""
    bytes_up: int = 0
    bytes_down: int = 0

    def worked(self, verify_us: int, queue_us: int) -> None:
        """Something was done for it."""
        self.verify_us += verify_us
        self.queue_us += queue_us

    def replied(self, tokens: int, drafted: int, accepted: int) -> None:
        """One verdict, or tokens of a stream, more."""
        client = self.client
        self.rounds += 1
        self.tokens += tokens
        self.drafted += drafted
        self.accepted += accepted
        client.tokens += tokens
        client.drafted += drafted
        client.accepted += accepted

    def ended_with(self, code: str) -> None:
        """It ends in an error."""
        self.error = code
        self.client.ended[code] += 1

    def totals(self, now: float) -> dict[str, float | str]:
        """For the log, when it is over; now: of the clock that began_s is of."""
        found: dict[str, float | str] = {
            "seconds": round(now - self.began_s, 3),
            "rounds": self.rounds,
            "tokens": self.tokens,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "verify_ms": round(self.verify_us / 1e3, 3),
            "queue_ms": round(self.queue_us / 1e3, 3),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }
        return found | ({"error": self.error} if self.error else {})

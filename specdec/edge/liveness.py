"""Signs of life: when the verifier was last heard of, when to ask for one, when the link counts as lost, and whether
opening a session again still brings anything.
"""

from __future__ import annotations

from specdec.link.channel import Link
from specdec.link.wire import Ping

_PINGS_PER_TIMEOUT = 4
_MAX_FRUITLESS_RESUMES = 3


class Resumes:
    """How the sessions of one answer went. length_at_open: verified tokens when the last one was opened."""

    def __init__(self) -> None:
        self.length_at_open = 0
        self._fruitless = 0

    def opened(self, length: int) -> None:
        """A session opens with so many tokens verified."""
        self.length_at_open = length

    def lost(self, length: int) -> None:
        """The link was lost with so many tokens verified."""
        self._fruitless = 0 if length > self.length_at_open else self._fruitless + 1
        self.length_at_open = length

    @property
    def fruitless(self) -> bool:
        """True after several in a row that verified nothing."""
        return self._fruitless >= _MAX_FRUITLESS_RESUMES


class Heartbeat:
    """Watches one link during one answer. Times are seconds of the caller's clock."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._heard = 0.0
        self._progressed = 0.0
        self._asked: tuple[float, int] | None = None

    @property
    def interval_s(self) -> float:
        """Silence for so long is asked about."""
        return self._link.reply_timeout_s / _PINGS_PER_TIMEOUT

    @property
    def last_progress_s(self) -> float:
        """When the session last went on."""
        return self._progressed

    def restart(self, now: float) -> None:
        """A session opens."""
        self._heard = self._progressed = now
        self._asked = None

    def heard(self, now: float) -> None:
        """Something came, or nobody could have listened until now."""
        self._heard = now

    def progressed(self, now: float) -> None:
        """A message of the session went up, or brought it on."""
        self._progressed = now

    def mind(self, now: float, session: int, oldest_round: int) -> None:
        """Ask for a sign of life now and then; raise LinkLost when none comes, or nothing else for too long."""
        if now - self._heard > self._link.reply_timeout_s:
            raise self._link.silent(now - self._heard)
        if now - self._progressed > self._link.round_timeout_s:
            raise self._link.silent(now - self._progressed)
        if now - self._heard >= self.interval_s and self._asked is None:
            self.ask(now, session, oldest_round)
        elif self._asked is not None and now - self._asked[0] >= self.interval_s:
            self._asked = None

    def ask(self, now: float, session: int, round_: int) -> None:
        """Ask for a sign of life now, unless one is waited for already. round_: what the reply is compared with."""
        if self._asked is None:
            self._link.send(Ping(session))
            self._asked = now, round_

    def answered(self) -> tuple[float, int] | None:
        """A Pong came: when it was asked for, and the round of then; None where it was not waited for."""
        asked, self._asked = self._asked, None
        return asked

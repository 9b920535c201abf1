# SPDX-License-Identifier: Apache-2.0
"""Link supervision: heartbeats, detection of a lost link, and how often and how long to retry."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from specdec.errors import LinkLost, VerifierBusy
from specdec.link.channel import Link
from specdec.link.wire import Ping

_PINGS_PER_TIMEOUT = 4
_MAX_FRUITLESS_RESUMES = 3
_PINGS_PER_SESSION_TIMEOUT = 4
_LONGEST_SILENCE_S = 10.0
"""Longest time that a listening edge sends nothing; a verifier may require shorter intervals."""
_PROMPT_TOKENS_A_S = 10.0
_LONGEST_PROMPT_S = 600.0
"""Longest extra time for a verifier to compute a prompt, beyond the time of a round: a large model on a CPU needs it.
If the edge reopened the session too early, the verifier would restart the prompt and never reply.
"""
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

_log = logging.getLogger(__name__)


class Resumes:
    """Counts fruitless sessions of one answer. length_at_open: verified tokens when the last session was opened."""

    def __init__(self) -> None:
        self.length_at_open = 0
        self._fruitless = 0
        self._is_lost = False

    def opened(self, length: int) -> bool:
        """A session opens with this many tokens verified; whether the answer goes on with it after a lost link."""
        self.length_at_open = length
        resumed, self._is_lost = self._is_lost, False
        return resumed

    def lost(self, length: int) -> None:
        """The link was lost with this many tokens verified."""
        self._is_lost = True
        self._fruitless = 0 if length > self.length_at_open else self._fruitless + 1
        self.length_at_open = length

    @property
    def fruitless(self) -> bool:
        """True after several resumes in a row that verified nothing."""
        return self._fruitless >= _MAX_FRUITLESS_RESUMES


class Heartbeat:
    """Watches one link during one answer. Times are seconds of the caller's clock."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._heard = 0.0
        self._progressed = 0.0
        self._prompt_s = 0.0
        self._asked: tuple[float, int] | None = None
        self._said = 0.0
        self._say_every_s = _LONGEST_SILENCE_S

    @property
    def interval_s(self) -> float:
        """After this much silence, a ping is sent."""
        return self._link.reply_timeout_s / _PINGS_PER_TIMEOUT

    @property
    def last_progress_s(self) -> float:
        """When the session last made progress."""
        return self._progressed

    def restart(self, now: float, session_timeout_s: float = 0.0, prompt_tokens: int = 0) -> None:
        """A session opens. session_timeout_s: after this much silence the verifier drops a session; 0: unknown.
        prompt_tokens: tokens to compute before the first reply.
        """
        self._heard = self._progressed = self._said = now
        self._prompt_s = min(prompt_tokens / _PROMPT_TOKENS_A_S, _LONGEST_PROMPT_S)
        self._say_every_s = _LONGEST_SILENCE_S
        if session_timeout_s:
            self._say_every_s = min(self._say_every_s, session_timeout_s / _PINGS_PER_SESSION_TIMEOUT)
        self._asked = None

    def opened(self) -> None:
        """The verifier has computed the prompt."""
        self._prompt_s = 0.0

    def heard(self, now: float) -> None:
        """A message arrived, or the edge was not listening until now."""
        self._heard = now

    def progressed(self, now: float) -> None:
        """A message of the session was sent, or one arrived that advanced it."""
        self._progressed = now

    def mind(self, now: float, session: int, oldest_round: int) -> None:
        """Send pings during silence; raise LinkLost after too much silence, or too long without progress."""
        if now - self._heard > self._link.reply_timeout_s:
            raise self._link.silent(now - self._heard)
        if now - self._progressed > self._link.round_timeout_s + self._prompt_s:
            raise self._link.stalled(now - self._progressed)
        if now - self._heard >= self.interval_s and self._asked is None:
            self.ask(now, session, oldest_round)
        elif self._asked is not None and now - self._asked[0] >= self._link.reply_timeout_s:
            self._asked = None  # no sooner: a late pong would be taken for that of the next ping

    def keep_alive(self, now: float, session: int, round_: int) -> None:
        """Send a ping now and then while the cloud streams, so that it does not drop the session."""
        if now - self._said >= self._say_every_s:
            self._said = now
            if self._asked is None:
                self.ask(now, session, round_)
            else:  # the pong to the previous ping may be lost, or may still come
                self._link.send(Ping(session))

    def ask(self, now: float, session: int, round_: int) -> None:
        """Send a ping unless one is unanswered. round_: the round with which the pong will be compared."""
        if self._asked is None:
            self._link.send(Ping(session))
            self._asked = now, round_

    def answered(self) -> tuple[float, int] | None:
        """A pong arrived: returns when its ping was sent and the round at that time; None if none was expected."""
        asked, self._asked = self._asked, None
        return asked


class Patience:
    """Retry pauses of one decoder. Times are seconds of the clock.

    Pauses before a retry with a busy verifier double. Each is multiplied by a random factor from 0.5 to 1.5, so that
    edges refused together do not return together. A busy verifier or a lost link is logged once until an answer
    progresses.
    """

    def __init__(
        self, timeout_s: float, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        """timeout_s: how long to retry. chance: random numbers from 0 to 1."""
        self._timeout_s = timeout_s
        self._clock = clock
        self._chance = chance
        self._since: float | None = None
        self._pause_s = _PAUSE_S
        self._said = False

    def begin(self) -> None:
        """An answer begins."""
        self._since = None
        self._pause_s = _PAUSE_S

    def went_on(self) -> None:
        """Tokens were verified."""
        self.begin()
        self._said = False

    def pause_s(self, error: LinkLost, endless: bool) -> float | None:
        """How long to wait before the next attempt; None if the time is over.

        endless: retry even after the time is over.
        """
        now = self._clock()
        self._since = now if self._since is None else self._since
        left = self._since + self._timeout_s - now
        if left <= 0 and not endless:
            return None
        busy = isinstance(error, VerifierBusy)
        if not self._said and not endless:
            self._said = True
            if busy:
                _log.warning("%s (retrying for %g s)", error, self._timeout_s)
            else:
                _log.warning("link lost, retrying for %g s: %s", left, error)
        if not busy:
            return _PAUSE_S
        pause = self._pause_s * (0.5 + self._chance())
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return min(pause, max(left, 0.0))

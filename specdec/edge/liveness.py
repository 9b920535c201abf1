# SPDX-License-Identifier: Apache-2.0
"""Signs of life: when the verifier was last heard of, when to ask for one, when the link counts as lost, whether
opening a session again still brings anything, and how soon and how long to try.
"""

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
"""Of an edge that only listens; a verifier may say that it wants to hear more often."""
_PROMPT_TOKENS_A_S = 10.0
_LONGEST_PROMPT_S = 600.0
"""A verifier that lives may take this long over a prompt, beside the time of a round: a large model on a CPU needs it.
An edge that opened the session again would have it begin the prompt anew, and never be answered.
"""
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0

_log = logging.getLogger(__name__)


class Resumes:
    """How the sessions of one answer went. length_at_open: verified tokens when the last one was opened."""

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
        """True after several in a row that verified nothing."""
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
        """Silence for this long is asked about."""
        return self._link.reply_timeout_s / _PINGS_PER_TIMEOUT

    @property
    def last_progress_s(self) -> float:
        """When the session last went on."""
        return self._progressed

    def restart(self, now: float, session_timeout_s: float = 0.0, prompt_tokens: int = 0) -> None:
        """A session opens. session_timeout_s: the verifier forgets one that it hears nothing of; 0: not known.
        prompt_tokens: it computes so many before it answers.
        """
        self._heard = self._progressed = self._said = now
        self._prompt_s = min(prompt_tokens / _PROMPT_TOKENS_A_S, _LONGEST_PROMPT_S)
        self._say_every_s = _LONGEST_SILENCE_S
        if session_timeout_s:
            self._say_every_s = min(self._say_every_s, session_timeout_s / _PINGS_PER_SESSION_TIMEOUT)
        self._asked = None

    def opened(self) -> None:
        """The prompt is computed."""
        self._prompt_s = 0.0

    def heard(self, now: float) -> None:
        """Something came, or nothing could have listened until now."""
        self._heard = now

    def progressed(self, now: float) -> None:
        """A message of the session went up, or brought it on."""
        self._progressed = now

    def mind(self, now: float, session: int, oldest_round: int) -> None:
        """Ask for a sign of life now and then; raise LinkLost when none comes, or nothing else for too long."""
        if now - self._heard > self._link.reply_timeout_s:
            raise self._link.silent(now - self._heard)
        if now - self._progressed > self._link.round_timeout_s + self._prompt_s:
            raise self._link.stalled(now - self._progressed)
        if now - self._heard >= self.interval_s and self._asked is None:
            self.ask(now, session, oldest_round)
        elif self._asked is not None and now - self._asked[0] >= self.interval_s:
            self._asked = None

    def keep_alive(self, now: float, session: int, round_: int) -> None:
        """Say now and then that this side lives, where the other one talks and nothing else is to be said."""
        if now - self._said >= self._say_every_s:
            self._said = now
            if self._asked is None:
                self.ask(now, session, round_)
            else:  # the answer to the question before may have been lost, or may still come
                self._link.send(Ping(session))

    def ask(self, now: float, session: int, round_: int) -> None:
        """Ask for a sign of life now, unless one is waited for already. round_: what the reply is compared with."""
        if self._asked is None:
            self._link.send(Ping(session))
            self._asked = now, round_

    def answered(self) -> tuple[float, int] | None:
        """A Pong came: when it was asked for, and the round of then; None where it was not waited for."""
        asked, self._asked = self._asked, None
        return asked


class Patience:
    """What one decoder has had to wait for. Times are seconds of the clock.

    A busy verifier is tried again after pauses that double, each between half and one and a half times as long as it
    would be: edges that were turned away together do not come back together. A busy verifier and a lost link are said
    once, until an answer goes on.
    """

    def __init__(
        self, timeout_s: float, clock: Callable[[], float], chance: Callable[[], float] = random.random
    ) -> None:
        """timeout_s: how long to try. chance: numbers from 0 to 1."""
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
        """Something was verified."""
        self.begin()
        self._said = False

    def pause_s(self, error: LinkLost, endless: bool) -> float | None:
        """How long to wait before the next attempt, or None where there is none any more.

        endless: an attempt does not count against the time.
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
                _log.warning("%s (trying for %g s)", error, self._timeout_s)
            else:
                _log.warning("link lost, trying again for %g s: %s", left, error)
        if not busy:
            return _PAUSE_S
        pause = self._pause_s * (0.5 + self._chance())
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return min(pause, max(left, 0.0))

# SPDX-License-Identifier: Apache-2.0
"""Passes one answer from the thread that makes it to the event-loop task that sends it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from specdec.edge.stats import AnswerStats
from specnav.api.errors import ApiError

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Piece:
    """Verified text, and its token ids."""

    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class AnswerOutcome:
    """How an answer ended. finish: None if it was cancelled."""

    finish: FinishReason | None
    prompt_tokens: int
    method: str
    stats: AnswerStats

    @property
    def drafted(self) -> int:
        """Number of draft tokens judged."""
        return sum(one.drafted for one in self.stats.rounds)

    @property
    def accepted(self) -> int:
        """Number of draft tokens accepted."""
        return sum(one.accepted for one in self.stats.rounds)


class ApiAnswer:
    """An answer in progress. cancel: set it to end the answer soon. Pieces are joined until they are taken, so that a
    client that reads slowly, or wants only the whole answer, causes no thread switches.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.cancel = threading.Event()
        self._loop = loop
        self._lock = threading.Lock()
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._end: AnswerOutcome | ApiError | None = None
        self._listening = False
        self._ready = asyncio.Event()
        self._rested = asyncio.Event()
        self._over = asyncio.Event()

    def say(self, text: str, ids: list[int]) -> None:
        """Called in the answer's thread with newly verified text."""
        with self._lock:
            self._texts.append(text)
            self._ids.extend(ids)
            wake = self._listening and bool(text)
            if wake:
                self._listening = False
        if wake:
            self._call(self._ready.set)

    def end(self, end: AnswerOutcome | ApiError) -> None:
        """Called in the answer's thread when the answer has ended."""
        with self._lock:
            self._end = end
        self._call(self._wake_all)

    def _wake_all(self) -> None:
        for event in (self._over, self._ready, self._rested):
            event.set()

    def _call(self, action: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the event loop has ended: nothing waits
            self.cancel.set()

    async def next(self) -> Piece | None:
        """The text since the last call, as soon as there is any; None after the end.

        Raises ApiError if the answer has failed, once all earlier text was taken.
        """
        while True:
            with self._lock:
                if any(self._texts) or (self._end is not None and self._ids):
                    piece = Piece("".join(self._texts), tuple(self._ids))
                    self._texts.clear()
                    self._ids.clear()
                    return piece
                if isinstance(self._end, ApiError):
                    raise self._end
                if self._end is not None:
                    return None
                self._ready.clear()
                self._listening = True
            await self._ready.wait()

    async def rest(self, seconds: float) -> None:
        """Wait for more text to accumulate: for at least half of `seconds`, but not beyond the end of the answer.

        Answers that wait equally long wake at the same moments, so the loop wakes once for many of them.
        """
        if self._over.is_set():
            return
        self._rested.clear()
        beat = seconds / 2
        timer = self._loop.call_at((self._loop.time() + seconds) // beat * beat, self._rested.set)
        try:
            await self._rested.wait()
        finally:
            timer.cancel()

    async def whole(self) -> Piece:
        """The whole answer, at its end. Raises ApiError if it has failed."""
        await self._over.wait()
        if isinstance(self._end, ApiError):
            raise self._end
        return await self.next() or Piece()

    @property
    def ended(self) -> AnswerOutcome | ApiError | None:
        """How it ended; None while it is in progress."""
        return self._end

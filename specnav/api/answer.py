# SPDX-License-Identifier: Apache-2.0
"""One answer on its way: from the thread that makes it to the task of the event loop that sends it."""

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
    """Text that is certain, and the ids that it came with."""

    text: str = ""
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class AnswerOutcome:
    """How an answer ended. finish: None if it was not wanted any more."""

    finish: FinishReason | None
    prompt_tokens: int
    method: str
    stats: AnswerStats

    @property
    def drafted(self) -> int:
        """Draft tokens that were judged."""
        return sum(one.drafted for one in self.stats.rounds)

    @property
    def accepted(self) -> int:
        """Draft tokens that the target took."""
        return sum(one.accepted for one in self.stats.rounds)


class ApiAnswer:
    """cancel: set it, and the answer ends soon. Pieces join while no node takes them: a client that reads slowly, or
    wants the whole only, costs no thread a step.
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
        """In the answer's thread: so much is verified."""
        with self._lock:
            self._texts.append(text)
            self._ids.extend(ids)
            wake = self._listening and bool(text)
            if wake:
                self._listening = False
        if wake:
            self._call(self._ready.set)

    def end(self, end: AnswerOutcome | ApiError) -> None:
        """In the answer's thread: nothing follows."""
        with self._lock:
            self._end = end
        self._call(self._wake_all)

    def _wake_all(self) -> None:
        for event in (self._over, self._ready, self._rested):
            event.set()

    def _call(self, action: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(action)
        except RuntimeError:  # the loop has ended: no thread waits
            self.cancel.set()

    async def next(self) -> Piece | None:
        """What has been said since the last time, as soon as there is any; None behind the end.

        Raises ApiError where the answer has failed, once everything said before was taken.
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
        """Let more come together, for half of this long at least; no longer than until the end.

        Answers that rest equally long go on at the same moments: the loop wakes once for many of them.
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
        """All of it, at the end. Raises ApiError where the answer has failed."""
        await self._over.wait()
        if isinstance(self._end, ApiError):
            raise self._end
        return await self.next() or Piece()

    @property
    def ended(self) -> AnswerOutcome | ApiError | None:
        """How it ended; None while it is made."""
        return self._end

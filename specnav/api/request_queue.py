# SPDX-License-Identifier: Apache-2.0
"""Who comes next: this many answers at a time, this many requests that wait for one, and no more than that."""

from __future__ import annotations

import asyncio
from collections import deque

from specnav.api.errors import ApiError


class RequestQueue:
    """In one event loop. busy: places taken; waiting: requests in the queue."""

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.busy = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return sum(not one.done() for one in self._waiting)

    async def take(self) -> None:
        """Wait for a place, in the order of coming. Raises ApiError where the queue is full, or the server ends."""
        self.check()
        if self.busy < self._places:
            self.busy += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # its turn came at the moment at which it left
            raise

    def check(self) -> None:
        """Raise ApiError where no more requests may come."""
        if self._closed:
            raise _ending()
        if self.busy >= self._places and self.waiting >= self._queue:
            raise ApiError(
                429,
                f"{self.busy} answers are being made and {self.waiting} requests wait: try again later",
                code="rate_limit_exceeded",
            )

    def give_back(self) -> None:
        """A place is free: the next one's turn."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.busy -= 1

    @property
    def closed(self) -> bool:
        """Whether no request gets a place any more."""
        return self._closed

    def close(self) -> None:
        """No request gets a place any more; who waits is told."""
        self._closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(_ending())


def _ending() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down")

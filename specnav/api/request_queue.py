# SPDX-License-Identifier: Apache-2.0
"""Bounds how many requests are answered at a time, and how many wait for that."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from specnav.api.errors import ApiError


class RequestQueue:
    """Belongs to one event loop. busy: places taken; waiting: requests in the queue."""

    def __init__(self, places: int, queue: int) -> None:
        self._places = places
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.busy = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    async def take(self) -> None:
        """Wait for a place, first come, first served. Raises ApiError if the queue is full or the server ends."""
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
                self.give_back()  # it got its place at the moment it was cancelled
            with suppress(ValueError):  # not to be kept for as long as all places are taken
                self._waiting.remove(turn)
            raise

    def check(self) -> None:
        """Raise ApiError if no further request can be accepted."""
        if self._closed:
            raise _ending()
        if self.busy >= self._places and self.waiting >= self._queue:
            raise ApiError(
                429,
                f"{self.busy} answers are running and {self.waiting} requests wait: try again later",
                code="rate_limit_exceeded",
            )

    def give_back(self) -> None:
        """Release a place and give it to the next request."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.busy -= 1

    @property
    def closed(self) -> bool:
        """Whether requests are refused because the server ends."""
        return self._closed

    def close(self) -> None:
        """Refuse all requests from now on, including waiting ones."""
        self._closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(_ending())


def _ending() -> ApiError:
    return ApiError(503, "the server is shutting down", code="shutting_down")

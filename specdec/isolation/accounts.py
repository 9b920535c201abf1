# SPDX-License-Identifier: Apache-2.0
"""Who pays for a worker's time: each client may have so much of it, and is refused beyond that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

from specdec.errors import SpecdecError

BURST_S = 10.0
"""CPU seconds of workers that a client may have at once: hundreds of pictures and schemas, or a few hostile ones."""
SHARE = 0.25
"""And so much of a CPU from then on."""


class OverSpent(SpecdecError):
    """A client's grammars and pictures have taken more time than one client may have: try again later."""


class Account:
    """What one client has left; for any threads."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, burst_s: float = BURST_S, share: float = SHARE
    ) -> None:
        self._clock = clock
        self._burst_s = burst_s
        self._share = share
        self._left_s = burst_s
        self._at_s = clock()
        self._lock = threading.Lock()
        self.spent_s = 0.0

    def spend(self, seconds: float) -> None:
        """A worker has taken so long."""
        with self._lock:
            self._fill()
            self._left_s -= seconds
            self.spent_s += seconds

    def check(self) -> None:
        """Raise OverSpent where nothing is left."""
        with self._lock:
            self._fill()
            left_s = self._left_s
        if left_s <= 0.0:
            raise OverSpent(
                "your grammars and pictures have taken more computing time than one client may have: try again in "
                f"{1 + int(-left_s / self._share)} s, with simpler ones"
            )

    @property
    def owed_s(self) -> float:
        """What it has used lately: 0 where all of it may be used."""
        with self._lock:
            self._fill()
            return self._burst_s - self._left_s

    @property
    def untouched(self) -> bool:
        """Whether it need not be kept: a new one would say the same."""
        with self._lock:
            self._fill()
            return self._left_s >= self._burst_s

    def _fill(self) -> None:
        now = self._clock()
        self._left_s = min(self._burst_s, self._left_s + (now - self._at_s) * self._share)
        self._at_s = now


charged: ContextVar[Account | None] = ContextVar("charged", default=None)
"""Whose jobs are handed over in this thread, or task; None: no account's, nothing is counted."""


class Accounts:
    """One account a client, by name; for any threads."""

    MOST = 10_000

    def __init__(self, make: Callable[[], Account] = Account) -> None:
        self._make = make
        self._known: dict[bytes, Account] = {}
        self._lock = threading.Lock()

    def account_of(self, owner: bytes) -> Account:
        """The account of a client."""
        with self._lock:
            found = self._known.get(owner)
            if found is None:
                if len(self._known) >= self.MOST:
                    self._known = {name: one for name, one in self._known.items() if not one.untouched}
                found = self._known[owner] = self._make()
            return found

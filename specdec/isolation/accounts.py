# SPDX-License-Identifier: Apache-2.0
"""Worker time per client: each client has a budget and is refused once it is used up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

from specdec.errors import SpecdecError

BURST_S = 10.0
"""CPU seconds of workers that a client can use at once: hundreds of pictures and schemas, or a few hostile ones."""
SHARE = 0.25
"""Rate at which the budget refills, as a share of one CPU."""


class OverSpent(SpecdecError):
    """A client's grammars and pictures have used up its budget of worker time. wait_s: when to try again."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(
            "your grammars and pictures have taken more computing time than one client may have: try again in "
            f"{wait_s} s, with simpler ones"
        )
        self.wait_s = wait_s


class Account:
    """The budget of one client. Thread-safe."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, burst_s: float = BURST_S, share: float = SHARE
    ) -> None:
        self._clock = clock
        self._burst_s = burst_s
        self._share = share
        self._left_s = burst_s
        self._at_s = clock()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        """Charge seconds of worker time."""
        with self._lock:
            self._fill()
            self._left_s -= seconds

    def check(self) -> None:
        """Raise OverSpent if the budget is used up."""
        with self._lock:
            self._fill()
            left_s = self._left_s
        if left_s <= 0.0:
            raise OverSpent(1 + int(-left_s / self._share))

    @property
    def owed_s(self) -> float:
        """Seconds used and not yet refilled; 0 if the full budget is available."""
        with self._lock:
            self._fill()
            return self._burst_s - self._left_s

    def _fill(self) -> None:
        now = self._clock()
        self._left_s = min(self._burst_s, self._left_s + (now - self._at_s) * self._share)
        self._at_s = now


charged: ContextVar[Account | None] = ContextVar("charged", default=None)
"""The account charged for jobs that this thread or task submits; None: they are not counted."""


class Accounts:
    """One account per client, by name. Thread-safe."""

    MOST = 10_000

    def __init__(self) -> None:
        self._known: dict[bytes, Account] = {}
        self._lock = threading.Lock()

    def account_of(self, owner: bytes) -> Account:
        """The account of a client."""
        with self._lock:
            found = self._known.get(owner)
            if found is None:
                if len(self._known) >= self.MOST:
                    self._known = {name: one for name, one in self._known.items() if one.owed_s}
                found = self._known[owner] = Account()
            return found

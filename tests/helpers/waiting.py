"""Waiting for what other threads and processes do, and a clock that waits for nobody."""

from __future__ import annotations

from collections.abc import Callable

from specnav.supervise.waiting import wait_until


def until(true: Callable[[], object], seconds: float = 20.0, explain: Callable[[], str] = lambda: "") -> None:
    """Wait until it is so; fails with what `explain` says."""
    wait_until(lambda: bool(true()), seconds, "it has not happened", explain)


class Clock:
    """Seconds that pass when a test says so, or something sleeps."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

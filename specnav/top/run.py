# SPDX-License-Identifier: Apache-2.0
"""Scrapes, draws and waits, until Ctrl-C or once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.live import Live

from specdec.settings import check_settings, setting
from specnav.errors import UsageError
from specnav.top.scrape import Address, Interval, Scrape, ScrapeFailed, fetch, parse
from specnav.top.view import view_of

METRICS = "127.0.0.1:9464"
"""Where commands and documents expect a verifier's --metrics; Prometheus itself listens at port 9090."""


@dataclass(frozen=True)
class TopConfig:
    """Which verifier to watch, and how often."""

    address: str = setting(
        METRICS, "Where the verifier's --metrics listens.", metavar="[HOST:PORT]", positional=True
    )
    interval_s: float = setting(1.0, "Time between two updates.", 0.1, 3600, unit="s", flags=("--interval",))
    once: bool = setting(False, "Print one snapshot, with rates over one interval, and exit.")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)


@dataclass
class VerifierWatch:
    """State of the watched verifier. If the verifier goes away, the watch goes on until it is back.

    address: where the metrics are. text: returns the verifier's current /metrics, or raises ScrapeFailed. clock:
    returns seconds.
    """

    address: Address
    text: Callable[[], str]
    clock: Callable[[], float]
    _before: Scrape | None = None
    _interval: Interval | None = None
    _answers: bool = False

    def __post_init__(self) -> None:
        self._heard_s, self._heard_at = self.clock(), time.strftime("%H:%M:%S")

    def look(self) -> None:
        """Scrape once; the figures then cover the time since the previous scrape. Raises ScrapeFailed."""
        try:
            now = parse(self.text(), self.clock())
        except ScrapeFailed:
            self._before, self._answers = None, False  # figures across the gap would belong to no interval
            raise
        self._interval = None if self._before is None else Interval(self._before, now)
        self._before, self._answers = now, True
        self._heard_s, self._heard_at = now.at_s, time.strftime("%H:%M:%S")

    def view(self) -> RenderableType:
        """Draw the current state."""
        where = f"verifier {self.address}"
        if not self._answers:
            silent_s = self.clock() - self._heard_s
            return view_of(f"{where}   no answer since {self._heard_at} ({silent_s:.0f} s)", self._interval)
        draining = self._interval is not None and self._interval.now.total("draining") > 0
        state = "draining" if draining else "serving"
        seconds = "" if self._interval is None else f"   last {self._interval.seconds:.1f} s"
        return view_of(f"{where}   {self._heard_at}   {state}{seconds}", self._interval)


def run_top(config: TopConfig) -> int:
    """Show a verifier's metrics until interrupted, or once.

    Returns 0, after one snapshot. Raises UsageError if the address is invalid, ScrapeFailed if nothing answers at the
    first attempt.
    """
    address, console = Address.parse(config.address), Console(highlight=False)
    watch = VerifierWatch(address, lambda: fetch(address), time.monotonic)
    watch.look()
    if config.once:
        time.sleep(config.interval_s)
        watch.look()
        console.print(watch.view())
        return 0
    if not console.is_terminal:
        while True:
            _look_again(watch, config.interval_s)
            console.print(watch.view())
    with Live(watch.view(), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            _look_again(watch, config.interval_s)
            live.update(watch.view(), refresh=True)


def _look_again(watch: VerifierWatch, interval_s: float) -> None:
    time.sleep(interval_s)
    with contextlib.suppress(ScrapeFailed):  # the view shows since when nothing answers
        watch.look()

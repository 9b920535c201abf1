# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: SIGTERM does what Ctrl-C does, so that both leave the same things behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """SIGTERM ends the run like Ctrl-C does. Outside the main thread, which alone hears signals, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def notes_signals() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM interrupt nothing; yields what says whether one of them has come."""
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()

    before = [(number, signal.signal(number, note)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield came.is_set
    finally:
        for number, handler in before:
            signal.signal(number, handler)

# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: SIGTERM and SIGHUP do what Ctrl-C does, so that all leave the same things behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP (the terminal was closed) end the run like Ctrl-C does; under nohup SIGHUP stays ignored.

    Outside the main thread, which alone hears signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, stop)}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, stop)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)

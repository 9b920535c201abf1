# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: SIGTERM, SIGQUIT and SIGHUP act like Ctrl-C, so that the cleanup is always the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from specdec.signals import unless_ignored

_LIKE_CTRL_C = (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)


@contextmanager
def ends_on_signals() -> Iterator[None]:
    """Make SIGTERM, SIGQUIT and SIGHUP (terminal closed) end the run like Ctrl-C; under nohup SIGHUP stays ignored.

    Does nothing outside the main thread, because only that thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled_by(stop, _LIKE_CTRL_C):
        yield


@contextmanager
def notes_signals() -> Iterator[Callable[[], bool]]:
    """Keep Ctrl-C and the signals that act like it from interrupting; yields whether one has arrived, as a function."""
    came = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        came.set()

    with _handled_by(note, (signal.SIGINT, *_LIKE_CTRL_C)):
        yield came.is_set


@contextmanager
def signals_wait() -> Iterator[None]:
    """Hold back Ctrl-C and the signals that act like it until the block has ended: what it writes is not left out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with notes_signals() as came:
        yield
    if came():
        raise KeyboardInterrupt


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None], numbers: tuple[signal.Signals, ...]
) -> Iterator[None]:
    before = [(number, signal.signal(number, handler)) for number in unless_ignored(numbers)]
    try:
        yield
    finally:
        for number, one in before:
            signal.signal(number, one)

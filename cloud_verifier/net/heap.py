"""Free memory goes back to the system now and then: Python keeps what refers to itself until it looks for that, and the
C library pages between what lives long. A verifier that runs for weeks, with sessions and caches of every size coming
and going, would come to hold far more than it uses.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from contextlib import suppress

EVERY_S = 60.0


def trim() -> None:
    """Collect what refers to itself, and give free pages back where the C library knows a way; a few ms."""
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # not the GNU one
            ctypes.CDLL("libc.so.6").malloc_trim(0)


class Trimmer:
    """Trims at most every EVERY_S seconds."""

    def __init__(self, clock: Callable[[], float], give_back: Callable[[], None] = trim) -> None:
        self._clock = clock
        self._give_back = give_back
        self._next = clock() + EVERY_S

    def look(self) -> None:
        """Called whenever something has happened."""
        if self._clock() >= self._next:
            self._give_back()
            self._next = self._clock() + EVERY_S

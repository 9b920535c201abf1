# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
A worker thread that processes only the newest input, so that the receiving thread never blocks.

The queue has one place: a new input replaces the one that still waits. The receiving thread
fetches the result. A worker that hangs or has died yields no results, so it looks like a silent
source.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Generic, TypeVar

Heard = TypeVar("Heard")
Made = TypeVar("Made")


class NewestWorker(Generic[Heard, Made]):
    """Runs `work` on the newest input in a thread of its own; must be closed."""

    def __init__(self, work: Callable[[Heard], Made], made: Callable[[], None], name: str = "newest") -> None:
        """work: called in the worker thread; made: called there when a result can be taken."""
        self._work, self._made = work, made
        self._changed = threading.Condition()
        self._waiting: tuple[Heard, float] | None = None
        self._done: tuple[Made, float] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, heard: Heard, at: float) -> None:
        """Process this input next, instead of a waiting one; at: when it was received, s."""
        with self._changed:
            self._waiting = (heard, at)
            self._changed.notify()

    def take(self) -> tuple[Made, float] | None:
        """Return the newest result and when its input was received, s; each result once."""
        with self._changed:
            done, self._done = self._done, None
            return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._waiting is not None)
                if self._ended or self._waiting is None:
                    return
                (heard, at), self._waiting = self._waiting, None
            done = (self._work(heard), at)
            with self._changed:
                self._done = done
                if self._ended:
                    return
            self._made()

    def close(self, timeout_s: float = 0.5) -> bool:
        """End the thread; returns whether it has ended (`work` may hang)."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

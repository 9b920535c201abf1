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
A thread that works on the newest of what comes in, so that who hears it does not wait.

There is one place in front of it: what comes while the thread is at work replaces what waits
there. What is worked out is fetched by the thread that heard it. A thread that hangs, or has died,
gives nothing more, and so looks like a source that is silent.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Generic, TypeVar

Heard = TypeVar("Heard")
Made = TypeVar("Made")


class NewestWorker(Generic[Heard, Made]):
    """Makes something of what is put in; `close` it."""

    def __init__(
        self, work: Callable[[Heard], Made], made: Callable[[], None], name: str = "newest"
    ) -> None:
        """work: called in the thread; made: called there when there is something to take."""
        self._work, self._made = work, made
        self._changed = threading.Condition()
        self._waiting: tuple[Heard, float] | None = None
        self._done: tuple[Made, float] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, heard: Heard, at: float) -> None:
        """Have this worked on next, instead of what still waits; `at`: when it was heard, s."""
        with self._changed:
            self._waiting = (heard, at)
            self._changed.notify()

    def take(self) -> tuple[Made, float] | None:
        """Return what was made last, and when what it is made of was heard; each time once."""
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
        """End the thread; returns whether it has ended, it may hang in its work."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

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
Latches that keep the robot from moving until an operator acts, stored on disk.

A node that restarts after a crash restores the latches of its predecessor. A file that cannot be
read, or a disk that cannot be written, counts as an e-stop: the robot moves only if a stop would
persist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import threading
import time

import msgspec
from spec_vlm_nav.common.kept_file import read_small, write_whole
from spec_vlm_nav.common.newest import NewestWorker

LONGEST_S = 5.0  # a write that takes longer has failed


@dataclass(frozen=True)
class Latches:
    """
    State that survives a restart of motion_node.

    lost: kind and reason of lost odometry.
    wrong: consecutive wrong responses of turns and of straight motions.
    shut: the direction that did not respond: whether it is a turn, and its sign.
    session, instruction: of the last command.
    latched, latched_by: the instruction that a stop ended, and the reason; a later one lifts it.
    fence: centre of that instruction's geofence: x, y, yaw.
    """

    estopped_by: str = ""
    lost: tuple[str, str] | None = None
    wrong: tuple[int, int] = (0, 0)
    shut: tuple[bool, float] | None = None
    session: int | None = None
    instruction: int = 0
    latched: int | None = None
    latched_by: str = ""
    fence: tuple[float, float, float] | None = None

    @property
    def holds(self) -> str:
        """Why the robot may not move, in words, or ""."""
        lost = f"odometry lost ({self.lost[1]})" if self.lost is not None else ""
        stop = self.latched_by if self.latched is not None else ""
        pressed = f"e-stop ({self.estopped_by})" if self.estopped_by else ""
        return pressed or lost or stop


def load(file: Path) -> Latches | None:
    """Return the stored latches; None if there is no file. Raises OSError and ValueError."""
    data = read_small(file)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Latches)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{file} must hold latches of motion_node, got {error}") from error


@dataclass(eq=False)
class _Write:
    """Latches to write. trouble: why they, or until they are written those before, could not be."""

    latches: Latches
    trouble: str
    asked_at: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)


class LatchKeeper:
    """Writes the latches of one node in a background thread, so that no stop waits for the disk."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._last: _Write | None = None
        self._worker: NewestWorker[_Write, None] = NewestWorker(self._write, lambda: None, "latches")

    def begin(self) -> Latches:
        """Return the stored latches; an unreadable file counts as an e-stop."""
        try:
            kept = load(self.file) or Latches()
        except (OSError, ValueError) as error:
            kept = Latches(f"the latches of the previous run cannot be read: {_why(error)}")
        self.keep(kept, LONGEST_S)
        return kept

    def keep(self, latches: Latches, wait_s: float = 0.0) -> None:
        """Write the latches if they have changed; wait for it at most wait_s."""
        if self._last is None or latches != self._last.latches:
            self._last = _Write(latches, self.trouble)
            self._worker.put(self._last, 0.0)
        if wait_s:
            self._last.done.wait(wait_s)

    @property
    def trouble(self) -> str:
        """Why the latest latches could not be written; "": written, or still within LONGEST_S."""
        last = self._last
        if last is None:
            return ""
        if not last.done.is_set() and time.monotonic() - last.asked_at >= LONGEST_S:
            return f"{self.file}: the disk has not answered for {LONGEST_S:g} s"
        return last.trouble

    def _write(self, job: _Write) -> None:
        try:
            write_whole(self.file, msgspec.json.encode(job.latches))
            job.trouble = ""
        except OSError as error:
            job.trouble = _why(error)
        job.done.set()

    def close(self) -> None:
        """End the thread after the last write."""
        if self._last is not None:
            self._last.done.wait(LONGEST_S)
        self._worker.close()


def _why(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

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

"""The threads beside the node: one writes files, as a disk may be slow; one encodes raw pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
import queue
import threading
from typing import BinaryIO

from spec_vlm_nav.blackbox.box import Recording
from spec_vlm_nav.blackbox.folder import Folder, os_error_text, Usage
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.newest import NewestWorker


@dataclass(frozen=True)
class Written:
    """Result of writing a recording: its file (None: see `error`), and the usage of all files."""

    word: str
    length_s: float
    path: Path | None
    size: int
    usage: Usage
    error: str = ""


class FileThread:
    """
    Writes one recording at a time.

    write: writes a recording to an open file. on_written: called from the thread.
    """

    def __init__(
        self,
        folder: Folder,
        write: Callable[[BinaryIO, Recording], None],
        on_written: Callable[[Written], None],
    ) -> None:
        self._folder, self._write, self._on_written = folder, write, on_written
        self.usage = folder.usage()
        self._jobs: queue.Queue[Recording | None] = queue.Queue()
        self._busy = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blackbox files", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether a file is being written."""
        return self._busy.is_set()

    def submit(self, recording: Recording) -> None:
        """Queue a recording."""
        self._busy.set()
        self._jobs.put(recording)

    def close(self, timeout_s: float) -> bool:
        """Wait until queued recordings are written; returns whether that was in time."""
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (recording := self._jobs.get()) is not None:
            written = self._make(recording)
            del recording  # releases as much memory as the ring uses
            self.usage = written.usage
            self._on_written(written)
            self._busy.clear()

    def _make(self, recording: Recording) -> Written:
        first = recording.triggers[0]
        path, error, size = None, "", 0
        try:
            path = self._folder.write(
                recording.time_ns(first.at),
                first.word,
                recording.contents.size,
                lambda stream: self._write(stream, recording),
            )
            size = path.stat().st_size
        except OSError as failure:
            error = f"cannot write into {self._folder.path}: {os_error_text(failure)}"
        except Exception as failure:  # the library may raise anything for malformed messages
            said = " ".join(str(failure).split())
            error = f"cannot write this recording: {type(failure).__name__}: {said}"
        return Written(first.word, recording.length_s, path, size, self._folder.usage(), error)


class PictureEncoder:
    """
    Encodes raw pictures at a bounded rate.

    encode: turns a camera message's bytes into those of a compressed one; may raise FrameError.
    put: called with the receive time and the result. warn: called with the error of a picture. All
    three are called from the thread.
    """

    def __init__(
        self,
        encode: Callable[[bytes], bytes],
        put: Callable[[float, bytes], None],
        warn: Callable[[str], None],
        rate_hz: float,
    ) -> None:
        self._encode, self._put, self._warn = encode, put, warn
        self.rate_hz = rate_hz
        self._taken_at = -1e18
        self._worker: NewestWorker[tuple[float, bytes], None] = NewestWorker(
            self._keep, lambda: None, "blackbox encoder"
        )
        self.close = self._worker.close

    def offer(self, at: float, data: bytes) -> None:
        """Queue a raw picture unless it exceeds the rate; it replaces a waiting one."""
        # 10 % tolerance, so that jitter does not drop every second picture.
        if at - self._taken_at >= 0.9 / self.rate_hz:
            self._taken_at = at
            self._worker.put((at, data), at)

    def _keep(self, job: tuple[float, bytes]) -> None:
        at, data = job
        try:
            self._put(at, self._encode(data))
        except FrameError as error:
            self._warn(f"camera picture not kept: {error}")
        except Exception as error:  # the bytes are not a picture message
            self._warn(f"camera picture not kept: {type(error).__name__}: {error}")

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
The audit log: one JSON line per command of a page: who, from where, what, and the result.

The file is rotated: a full one becomes FILE.1, older ones FILE.2 and FILE.3.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
from pathlib import Path
import stat
import threading
import time

LONGEST, LONGEST_NAME = 400, 80
KEPT = 3  # rotated files
MEGABYTE = 1_000_000


class Audit:
    """Appends to a file; if that fails, `complain` is called once and operation continues."""

    def __init__(self, file: Path, complain: Callable[[str], None], largest_mb: float = 10.0) -> None:
        """largest_mb: a file is rotated before it exceeds this size."""
        self._file, self._complain, self._has_complained = file, complain, False
        self._largest, self._lock = largest_mb * MEGABYTE, threading.Lock()

    def note(self, who: str, role: str, where: str, robot: str, command: str, outcome: str) -> None:
        """Log a command; may be called from any thread."""
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "who": who[:LONGEST_NAME],
            "role": role,
            "from": where[:LONGEST_NAME],
            "robot": robot[:LONGEST_NAME],
            "command": command[:LONGEST],
            "outcome": outcome[:LONGEST],
        }
        with self._lock:
            try:
                self._append((json.dumps(line, ensure_ascii=False) + "\n").encode())
                self._has_complained = False
            except OSError as error:
                if not self._has_complained:
                    self._complain(f"commands cannot be logged in {self._file}: {error}")
                self._has_complained = True

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        number = os.open(self._file, flags, 0o600)
        with os.fdopen(number, "ab") as stream:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it must be a regular file")
            if not found.st_size or found.st_size + len(line) <= self._largest:
                stream.write(line)
                return
        for place in range(KEPT, 0, -1):
            before = self._file if place == 1 else self._beside(place - 1)
            if before.exists():
                before.replace(self._beside(place))
        self._append(line)

    def _beside(self, place: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{place}")

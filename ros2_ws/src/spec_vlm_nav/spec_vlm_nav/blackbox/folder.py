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
The folder of black-box files: their names, their total size, and atomic writes.

Only files with a black-box name are ever counted or removed.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
from dataclasses import dataclass
from datetime import datetime, timezone
import errno
import os
from pathlib import Path
import re
from typing import BinaryIO

from spec_vlm_nav.common.errors import BlackboxError
from spec_vlm_nav.common.kept_file import home

PARTIAL = ".partial"
NAME = re.compile(r"blackbox-\d{8}-\d{6}Z-\w+?(-\d+)?\.mcap(\.partial)?", re.ASCII)
WORD_CHARS = 40
# Errors that may be temporary: the folder may be usable later.
_MAY_PASS = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO)


def default_folder() -> Path:
    """Return the default folder, in ROS_HOME or ~/.ros."""
    return home() / "blackbox"


def reason_of(path: Path) -> str:
    """Return the trigger word in a file's name."""
    return re.sub(r"-\d+$", "", path.name.partition("Z-")[2].partition(".")[0])


def os_error_text(error: OSError) -> str:
    """Return the system's error message without the file's name."""
    return error.strerror or str(error)


@dataclass(frozen=True)
class Usage:
    """Number of files and their total size, bytes."""

    files: int = 0
    size: int = 0


class Folder:
    """A folder of black-box files; max_bytes: bound of their total size."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes

    def prepare(self) -> str:
        """
        Create the folder; returns why it cannot be written now (maybe later), or "".

        Raises BlackboxError if it cannot be used at all.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not os.access(self.path, os.W_OK | os.X_OK):
                read_only = os.statvfs(self.path).f_flag & os.ST_RDONLY
                raise OSError(
                    errno.EROFS if read_only else errno.EACCES,
                    "Read-only file system" if read_only else "Permission denied",
                )
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            said = os_error_text(error) if isinstance(error, OSError) else str(error)
            if isinstance(error, OSError) and error.errno in _MAY_PASS:
                return f"{self.path}: {said}"
            raise BlackboxError(
                f"the folder {self.path} cannot be used ({said}): set the parameter folder to one that can"
            ) from error
        return ""

    def files(self) -> list[Path]:
        """Return the black-box files, oldest first, including partial ones."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.path.iterdir():
                if NAME.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found)]

    def usage(self) -> Usage:
        """Return number and size of the files."""
        sizes = [_size(path) for path in self.files()]
        return Usage(len(sizes), sum(sizes))

    def write(self, time_ns: int, word: str, size: int, fill: Callable[[BinaryIO], None]) -> Path:
        """
        Write a file and return its path.

        time_ns: wall clock, for the name. word: the trigger, for the name. size: approximate size
        in bytes; the oldest files are removed to make room. fill: writes the content.
        Raises OSError; no partial file remains.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._make_room(size)
        path, stream = self._begin(time_ns, word)
        partial = path.with_name(path.name + PARTIAL)
        try:
            with stream:
                fill(stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise
        self._keep_the_name()
        self._make_room(0, path)
        return path

    def _make_room(self, size: int, spare: Path | None = None) -> None:
        files = [path for path in self.files() if path != spare]
        taken = sum(_size(path) for path in files) + size + (_size(spare) if spare else 0)
        for path in files:
            if taken <= self.max_bytes:
                return
            taken -= _size(path)
            with contextlib.suppress(OSError):
                path.unlink()

    def _begin(self, time_ns: int, word: str) -> tuple[Path, BinaryIO]:
        """Return a free name and its partial file, opened; other robots may write into the folder, too."""
        when = datetime.fromtimestamp(time_ns // 10**9, timezone.utc).strftime("%Y%m%d-%H%M%SZ")
        what = re.sub(r"[^A-Za-z0-9_]+", "_", word)[:WORD_CHARS].strip("_") or "UNKNOWN"
        number = 1
        while True:
            more = f"-{number}" if number > 1 else ""  # e.g. after the clock was set back
            path = self.path / f"blackbox-{when}-{what}{more}.mcap"
            partial = path.with_name(path.name + PARTIAL)
            with contextlib.suppress(FileExistsError):
                stream = partial.open("xb")
                if not path.exists():
                    return path, stream
                stream.close()
                partial.unlink()
            number += 1

    def _keep_the_name(self) -> None:
        """Sync the folder to the disk; some file systems do not support it."""
        with contextlib.suppress(OSError):
            number = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

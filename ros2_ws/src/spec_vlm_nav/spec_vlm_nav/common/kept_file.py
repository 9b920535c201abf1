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

"""The nodes' own files: their folder, and atomic writes that are on the disk when the call returns."""

from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
import stat

from spec_vlm_nav.common.errors import ParameterError
from specdec import whole_files

MOST_BYTES = 1 << 20


def home(namespace: str = "") -> Path:
    """Return the folder for the files of the nodes in a namespace: in ROS_HOME, else in ~/.ros."""
    base = Path(os.environ.get("ROS_HOME") or "~/.ros").expanduser()
    return base / "spec_vlm_nav" / namespace.strip("/")


def given_path(parameter: str, given: str, default: Callable[[], Path]) -> Path:
    """Return the path in a parameter, or its default if it is empty. Raises ParameterError without a home."""
    try:
        return Path(given).expanduser().absolute() if given else default()
    except RuntimeError as error:
        raise ParameterError(f"{parameter} must be given here, got {given!r}: {error}") from error


def write_whole(file: Path, data: bytes) -> None:
    """Replace a file atomically. Raises OSError; the old file is then intact."""
    file.parent.mkdir(parents=True, exist_ok=True)
    whole_files.write_whole(file, data)


def read_small(file: Path, most_bytes: int = MOST_BYTES) -> bytes | None:
    """
    Return the content of a file; None if it does not exist.

    Raises OSError, and ValueError for a file that is not regular or larger than most_bytes.
    """
    try:
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ValueError(f"{file} must be a regular file")
    with os.fdopen(number, "rb") as stream:
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"{file} must be at most {most_bytes} bytes long")
    return data

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

"""The console's files: the audit log that it writes, and the black box's files that pages download."""

from __future__ import annotations

from collections.abc import Callable
import json
import os
from pathlib import Path
import secrets
import stat
import threading
import time
from typing import Any

LONGEST, LONGEST_NAME = 400, 80
KEPT = 3  # rotated files
MEGABYTE = 1_000_000
GOOD_FOR_S = 60.0
MOST_LISTED, MOST_TICKETS = 50, 200
ENDING = ".mcap"


class Audit:
    """
    Appends a line of JSON for each command of a page: who, from where, what, and the result.

    A full file becomes FILE.1, older ones FILE.2 and FILE.3. If appending fails, `complain` is called
    once and operation continues.
    """

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


class RobotFiles:
    """
    The files of a folder and its subfolders by robot namespace; folder None: no files.

    A download needs a ticket, which an admitted page requests over its socket, because a browser link
    cannot carry a token. A ticket is valid once and for GOOD_FOR_S.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._tickets: dict[str, tuple[Path, float]] = {}

    def listing(self, robot: str) -> dict[str, Any]:
        """Return a robot's files, newest first, with their folder, or why there are none."""
        if self._folder is None:
            return {"files": [], "folder": "", "why": "no black box folder is configured"}
        folder = self._folder / robot
        try:
            found = [(f.stat(), f.name) for f in folder.iterdir() if f.suffix == ENDING]
        except FileNotFoundError:
            return {"files": [], "folder": str(folder), "why": "nothing was written yet"}
        except OSError as error:
            return {"files": [], "folder": str(folder), "why": error.strerror or str(error)}
        found.sort(key=lambda one: (one[0].st_mtime, one[1]), reverse=True)
        rows = [
            {"name": name, "bytes": stat.st_size, "at": stat.st_mtime} for stat, name in found[:MOST_LISTED]
        ]
        return {"files": rows, "folder": str(folder), "why": "" if rows else "no file yet"}

    def ticket(self, robot: str, name: str, now: float) -> tuple[str, str]:
        """Return a ticket for a listed file, or "" and the reason. now: steady clock, s."""
        listed = {row["name"] for row in self.listing(robot)["files"]}
        if name not in listed or self._folder is None:
            return "", f"there is no file {name[:80]!r}"
        self._tickets = {t: e for t, e in self._tickets.items() if e[1] > now}
        if len(self._tickets) >= MOST_TICKETS:
            return "", "too many downloads at once: wait a minute"
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = (self._folder / robot / name, now + GOOD_FOR_S)
        return ticket, ""

    def answer(self, robot: str, kind: str, name: str, now: float) -> tuple[str, dict[str, Any]]:
        """Return the reply to a page's request for the list ("files") or for a file."""
        if kind == "files":
            return "files", self.listing(robot)
        ticket, why = self.ticket(robot, name, now)
        return ("no", {"to": "file", "why": why}) if why else ("file", {"ticket": ticket})

    def redeem(self, ticket: str, now: float) -> Path | None:
        """Return the file of a ticket, once; None if the ticket is unknown or expired."""
        path, until = self._tickets.pop(ticket, (None, 0.0))
        return path if now < until else None

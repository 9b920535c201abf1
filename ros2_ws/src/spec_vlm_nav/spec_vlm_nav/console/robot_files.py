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
Lists the black box's files and serves them for download.

A download needs a ticket, which an admitted page requests over its socket, because a browser link
cannot carry a token. A ticket is valid once and for GOOD_FOR_S.
"""

from __future__ import annotations

from pathlib import Path
import secrets
from typing import Any

GOOD_FOR_S = 60.0
MOST_LISTED, MOST_TICKETS = 50, 200
ENDING = ".mcap"


class RobotFiles:
    """The files of a folder and its subfolders by robot namespace; folder None: no files."""

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

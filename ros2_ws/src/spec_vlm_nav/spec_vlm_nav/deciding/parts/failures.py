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

"""What goes wrong on the way: said once until it is over, counted, and since when it lasts."""

from __future__ import annotations

from collections.abc import Callable, Collection

from spec_vlm_nav.common.codes import ErrorCode


class Failures:
    """Troubles that last (camera, odometry, link) and failures in a row, of one robot."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._since: dict[ErrorCode, float] = {}
        self._said: dict[ErrorCode, str] = {}
        self._in_a_row: dict[ErrorCode, int] = {}

    def warn_once(self, code: ErrorCode, text: str, now: float) -> bool:
        """Say it unless it was said already; returns whether it was said now."""
        if code in self._since:
            return False
        self._since[code], self._said[code] = now, text
        self._log("warn", text)
        return True

    def recovered(self, code: ErrorCode, now: float, text: str) -> None:
        """Take note that it is over; say so if it was warned of."""
        since = self._since.pop(code, None)
        if since is not None:
            self._log("info", f"{text} (after {now - since:.1f} s)")

    def lasting(self, code: ErrorCode, now: float) -> float:
        """For how long it has lasted, s; 0 when there is no such trouble."""
        return now - self._since[code] if code in self._since else 0.0

    def longest(self, now: float) -> tuple[ErrorCode, str, float] | None:
        """Return the trouble that has lasted longest, what was said of it, and for how long, s."""
        code = min(self._since, key=self._since.__getitem__, default=None)
        return None if code is None else (code, self._said[code], self.lasting(code, now))

    def count(self, code: ErrorCode) -> int:
        """One more failure of this kind; returns how many in a row."""
        self._in_a_row[code] = self._in_a_row.get(code, 0) + 1
        return self._in_a_row[code]

    def clear(self, code: ErrorCode) -> None:
        """Take note of a success of this kind."""
        self._in_a_row.pop(code, None)

    def begin(self, now: float, unknown: Collection[ErrorCode] = ()) -> None:
        """
        Begin a new instruction.

        Nothing has failed in a row, and what lasts is waited for anew. unknown: troubles that may
        be over without this having been noticed.
        """
        self._in_a_row.clear()
        self._since = {code: now for code in self._since if code not in unknown}

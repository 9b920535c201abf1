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

"""Faults during an instruction: each reported once until it is over, counted and timed."""

from __future__ import annotations

from collections.abc import Callable, Collection

from spec_vlm_nav.common.codes import ErrorCode


class Failures:
    """Lasting faults (camera, odometry, link) and counts of consecutive failures."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._since: dict[ErrorCode, float] = {}
        self._said: dict[ErrorCode, str] = {}
        self._in_a_row: dict[ErrorCode, int] = {}

    def warn_once(self, code: ErrorCode, text: str, now: float) -> bool:
        """Log a fault unless it was logged already; returns whether it was logged now."""
        if code in self._since:
            return False
        self._since[code], self._said[code] = now, text
        self._log("warn", text)
        return True

    def recovered(self, code: ErrorCode, now: float, text: str) -> None:
        """Record that a fault is over, and log it if the fault was logged."""
        since = self._since.pop(code, None)
        if since is not None:
            self._log("info", f"{text} (after {now - since:.1f} s)")

    def lasting(self, code: ErrorCode, now: float) -> float:
        """Return how long a fault has lasted, s; 0 if it is not present."""
        return now - self._since[code] if code in self._since else 0.0

    def longest(self, now: float) -> tuple[ErrorCode, str, float] | None:
        """Return the longest-lasting fault: its code, its text, and its duration, s."""
        code = min(self._since, key=self._since.__getitem__, default=None)
        return None if code is None else (code, self._said[code], self.lasting(code, now))

    def count(self, code: ErrorCode) -> int:
        """Count one more failure of this kind; returns the consecutive count."""
        self._in_a_row[code] = self._in_a_row.get(code, 0) + 1
        return self._in_a_row[code]

    def clear(self, code: ErrorCode) -> None:
        """Reset the count after a success."""
        self._in_a_row.pop(code, None)

    def begin(self, now: float, unknown: Collection[ErrorCode] = ()) -> None:
        """
        Reset the counts for a new instruction.

        Lasting faults stay, and their durations restart at `now`. unknown: faults that may have
        ended unnoticed.
        """
        self._in_a_row.clear()
        self._since = {code: now for code in self._since if code not in unknown}

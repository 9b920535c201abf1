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


"""When a mission begins: at once, after a delay, at a time of day, or on a signal."""

from __future__ import annotations

from spec_vlm_nav.missions.plan import Start, StartWhen

DAY = 1440  # minutes
LATE_S = 600.0  # a blocked mission may still begin this long after its minute


class DueTime:
    """Decides when a mission is due; once due it stays due, also after its minute."""

    def __init__(self, start: Start, now: float) -> None:
        self._start, self._given = start, now
        self._minute: int | None = None
        self._since: float | None = None

    def is_due(self, now: float, minute: int) -> bool:
        """Return whether the mission is due by the clock; minute: of the day."""
        when = self._start.when
        if when is StartWhen.AT:
            if self._since is None and self._comes(minute):
                self._since = now
            self._minute = minute
            return self._since is not None
        if when is StartWhen.AFTER:
            return now - self._given >= self._start.after_s
        return when is not StartWhen.SIGNAL

    def is_late(self, now: float) -> bool:
        """Return whether its minute passed more than LATE_S ago."""
        return self._since is not None and now - self._since > LATE_S

    def _comes(self, minute: int) -> bool:
        """Return whether the minute has come, or a clock change has skipped it."""
        at = self._start.at_minute
        if self._minute is None:
            return minute == at
        leap = (minute - self._minute) % DAY
        return minute == at or (0 < (at - self._minute) % DAY <= leap <= LATE_S / 60)


def waits_for(start: Start) -> str:
    """Return in words what a mission waits for, or ""."""
    return {
        StartWhen.NOW: "",
        StartWhen.READY: "",
        StartWhen.SIGNAL: "waits for resume",
        StartWhen.AFTER: f"begins {start.after_s:g} s after it was received",
        StartWhen.AT: f"begins at {clock(start.at_minute)}",
    }[start.when]


def clock(minute: int) -> str:
    """Return a minute of the day as HH:MM."""
    return f"{minute // 60:02}:{minute % 60:02}"

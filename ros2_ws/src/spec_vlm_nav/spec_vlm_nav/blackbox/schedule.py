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
When a file is due: so long after a trigger, and never two files too close together.

No trigger is lost: those that come while a file is due go into it, and those that come too soon
after a file wait for the next one, which the ring is long enough for.
"""

from __future__ import annotations

from spec_vlm_nav.blackbox.triggers import Trigger

MOST_TRIGGERS = 100  # of one file; the rest are only counted


class Schedule:
    """
    Gathers triggers into files.

    after_s: from a trigger to its file; gap_s: between the times that two files are due, s.
    """

    def __init__(self, after_s: float, gap_s: float) -> None:
        self.after_s, self.gap_s = after_s, gap_s
        self._triggers: list[Trigger] = []
        self._more = 0
        self._due_at = 0.0
        self._last_at = -1e18

    @property
    def waiting(self) -> bool:
        """Whether a file is to be written."""
        return bool(self._triggers)

    def due_in_s(self, now: float) -> float:
        """Return when the file is to be written, from now, s."""
        return max(0.0, self._due_at - now)

    def fire(self, trigger: Trigger) -> None:
        """Take a trigger. The first one sets the time: a storm must not put the file off."""
        if not self._triggers:
            self._due_at = max(trigger.at + self.after_s, self._last_at + self.gap_s)
        if len(self._triggers) < MOST_TRIGGERS:
            self._triggers.append(trigger)
        else:
            self._more += 1

    def take(self, now: float, at_once: bool = False) -> tuple[tuple[Trigger, ...], int]:
        """
        Return the triggers of the file to write now, and how many more there were.

        () when there is none. at_once: do not wait, the node is about to end.
        """
        if not self._triggers or (now < self._due_at and not at_once):
            return (), 0
        taken = tuple(self._triggers), self._more
        self._triggers, self._more, self._last_at = [], 0, now
        return taken

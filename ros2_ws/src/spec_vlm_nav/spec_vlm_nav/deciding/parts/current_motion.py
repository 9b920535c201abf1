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

"""The motion under way, and when motion_node counts as silent about it."""

from __future__ import annotations

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION
from spec_vlm_nav.common.status import Status, UNDER_WAY


class CurrentMotion:
    """
    The motion under way or, when none is, the last one.

    asked: the commanded motion. unverified: only the draft model decided it. settling_since: when
    the robot began to come to rest, s, or None. goes_on: whether motion_node's last report says
    that it carries out the motion.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.asked = NO_MOTION
        self.unverified = False
        self.settling_since: float | None = None
        self.goes_on = False
        self._ends_by = 0.0
        self._silent_from = 0.0
        self._met_something = False

    def ask(self, asked: Motion, unverified: bool) -> None:
        """Record a decided motion, whether or not it is carried out (dry_run)."""
        self.asked, self.unverified = asked, unverified

    def begin(self, sequence: int, ends_by: float, silent_from: float) -> None:
        """Expect reports about this motion; ends_by, silent_from: when they are overdue, s."""
        self.sequence, self.settling_since, self.goes_on = sequence, None, False
        self._ends_by, self._silent_from = ends_by, silent_from

    def heard(self, status: Status, now: float, silent_from: float) -> None:
        """Record a report; silent_from: when the next one is overdue, s."""
        self._silent_from, self.goes_on = silent_from, status.state in UNDER_WAY
        if status.state is MotionState.SETTLING and self.settling_since is None:
            self.settling_since = now

    def is_overdue(self, now: float) -> bool:
        """Whether its end or its next report is overdue."""
        return now > min(self._ends_by, self._silent_from)

    def ended(self, met_something: bool) -> None:
        """Record whether the motion ended at an obstacle."""
        self._met_something = met_something

    def forget_contact(self) -> None:
        """Discard the last motion's contact."""
        self._met_something = False

    def take_contact(self) -> bool:
        """Return whether the last motion ended at an obstacle; reading it clears it."""
        met, self._met_something = self._met_something, False
        return met

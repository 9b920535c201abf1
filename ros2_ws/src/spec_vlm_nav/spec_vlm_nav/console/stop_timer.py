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

"""Stop requests that wait until the robot stands. Pure: times are arguments, steady clock, s."""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.console.open_page import Page

STANDS_S, MOST = 3.0, 100


@dataclass(frozen=True)
class _StopRequest:
    page: Page
    number: str
    robot: str
    at: float


class StopTimer:
    """Tells a page how long its robot took to stand after STOP, or that it does not stand."""

    def __init__(self) -> None:
        self._asked: list[_StopRequest] = []

    def ask(self, page: Page, number: str, now: float) -> None:
        """Record a stop request. number: the page's request id, echoed in the reply."""
        if len(self._asked) < MOST:
            self._asked.append(_StopRequest(page, number, page.robot, now))

    def is_awaited(self, robot: str) -> bool:
        """Return whether a stop request of this robot is still open."""
        return any(one.robot == robot for one in self._asked)

    def look(self, robot: str, stands: bool, now: float) -> None:
        """Answer the open requests of a robot if it stands or STANDS_S have passed."""
        for one in [one for one in self._asked if one.robot == robot]:
            if stands:
                one.page.tell("stands", id=one.number, ms=round(1000 * (now - one.at)))
            if stands or now - one.at > STANDS_S:
                self._asked.remove(one)
                if not stands:
                    one.page.tell("stands", id=one.number, ms=None)

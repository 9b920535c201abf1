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
One open page: its user, the robot it shows, its outgoing messages, its control and its stops.

Times are arguments, steady clock, s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from spec_vlm_nav.console.access import AccessRole, MessageBucket, Token
from spec_vlm_nav.console.words import page_message

RATE, BURST = 10.0, 30.0  # commands of one page: per second, at once
CARDS = 12  # decisions that a page shows
STANDS_S, MOST_STOPS = 3.0, 100  # longest wait until a stopped robot stands; stops that wait
Send = Callable[[str | bytes], Awaitable[None]]


@dataclass
class _ControlHolder:
    page: int
    name: str
    heard_at: float


class Control:
    """
    Control of one robot: one page at a time, as long as it sends heartbeats.

    With the dead man's switch, the robot stops when its operator falls silent or releases control.
    silence_s: without a heartbeat for this long a page loses control.
    """

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self._holder: _ControlHolder | None = None

    @property
    def page(self) -> int | None:
        """Return the number of the page in control."""
        return self._holder.page if self._holder else None

    @property
    def name(self) -> str:
        """Return the name of the operator in control, or ""."""
        return self._holder.name if self._holder else ""

    def take(self, page: int, name: str, now: float, by_force: bool) -> str:
        """Take control; returns why not, or "". by_force: even from another operator."""
        if self._holder is not None and self._holder.page != page and not by_force:
            return f"{self._holder.name} has control: take it from them, or ask"
        self._holder = _ControlHolder(page, name, now)
        return ""

    def beat(self, page: int, now: float) -> None:
        """Record a heartbeat."""
        if self._holder is not None and self._holder.page == page:
            self._holder.heard_at = now

    def let_go(self, page: int) -> bool:
        """Release control; returns whether this page had it."""
        had = self.page == page
        if had:
            self._holder = None
        return had

    def lost(self, now: float) -> str:
        """Return the operator who has lost control by silence since the last call, or ""."""
        if self._holder is None or now - self._holder.heard_at <= self.silence_s:
            return ""
        name, self._holder = self._holder.name, None
        return name


@dataclass(eq=False)
class Page:
    """One open page."""

    number: int
    name: str
    role: AccessRole
    where: str
    send: Send
    robot: str = ""
    is_settled: bool = False  # whether it shows a robot that was heard, or was asked for
    token: Token | None = None
    connection: int = 0  # the front's number of its connection
    end: Callable[[int, str], Any] = lambda code, why: None
    on_look: Callable[[], None] = lambda: None  # called when it shows a robot
    in_flight: int = 0  # number of the picture that was sent and is not drawn yet
    sent_frame: int = 0
    decision: dict[str, Any] | None = None  # the last one sent to it
    bucket: MessageBucket = field(default_factory=lambda: MessageBucket(RATE, BURST))
    excess: MessageBucket = field(
        default_factory=lambda: MessageBucket(1.0, 1.0)
    )  # log lines about refused excess commands
    outbox: asyncio.Queue[str | bytes] = field(default_factory=lambda: asyncio.Queue(200))

    def tell(self, what: str, **told: Any) -> None:
        """Queue a message; it is dropped if the page cannot keep up."""
        if not self.outbox.full():
            self.outbox.put_nowait(page_message(what, told))

    def take_decisions(self, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the decisions that were not sent to this page yet, oldest first."""
        places = (place for place, one in enumerate(known) if one is self.decision)
        new = known[next(places, -1) + 1 :][-CARDS:]
        self.decision = new[-1] if new else self.decision
        return new


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
        if len(self._asked) < MOST_STOPS:
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

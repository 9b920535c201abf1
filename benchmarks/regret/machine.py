# SPDX-License-Identifier: Apache-2.0
"""The simulated clock, shared by edge, link and cloud of one world. Nothing sleeps and nothing is measured.

A Machine is both the clock that the real EdgeDecoder reads and its link. Time passes while the edge computes (`work`)
and while it waits (`receive`); meanwhile messages travel and the cloud works.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

from benchmarks.regret.cloud import SimulatedCloud
from benchmarks.regret.language import EOS, IDS, SimulatedLanguage
from benchmarks.regret.worlds import ROWS, SimulatedWorld
from specdec.errors import LinkLost
from specdec.link.shaping import Direction
from specdec.link.wire import PROTOCOL_VERSION, Down, Up, Welcome, encode


class Machine:
    """One world in operation. As a clock it is callable; as a link it stands in for specdec.link.channel.Link."""

    address = "simulated"
    connect_timeout_s = reply_timeout_s = round_timeout_s = 1e9

    def __init__(self, world: SimulatedWorld, language: SimulatedLanguage) -> None:
        self.world = world
        self.now = 0.0
        self.edge_s = 0.0
        self._random = Random(world.seed + 2)
        self._up_way, self._down_way = (Direction(world.link, 2 * world.seed + way) for way in (0, 1))
        self._cloud = SimulatedCloud(world, language, self._said)
        self._up: list[tuple[float, int, Up]] = []
        self._down: deque[tuple[float, Down, int]] = deque()
        self._sent = 0
        self._sessions = 0

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def forward(self, rows: int) -> None:
        """Let a forward of the edge's draft model take its time."""
        noise = math.exp(self._random.gauss(0.0, self.world.noise)) if self.world.noise else 1.0
        self.work(self.world.draft.for_rows(rows) / 1e3 * noise)

    def prefill(self) -> None:
        """Let a prompt on the edge take its time."""
        self.work(self.world.draft.for_rows(1) / 1e3 * self.world.prompt)

    def work(self, seconds: float) -> None:
        """Let the edge compute for this long, or longer while it shares its core with a forward of the cloud."""
        began = self.now
        while seconds > 1e-12:
            self._settle()
            rate = 1.0 / (1.0 + self.world.contention) if self._cloud.computes else 1.0
            until = min(self.now + seconds / rate, self._next(rate))
            seconds -= (until - self.now) * rate
            self._pass(until, rate)
        self._settle()
        self.edge_s += self.now - began

    def _next(self, rate: float) -> float:
        arrives = self._up[0][0] if self._up else math.inf
        return max(self.now, min(arrives, self._cloud.next_change(rate)))

    def _pass(self, until: float, rate: float) -> None:
        self._cloud.run(until, rate)
        self.now = until

    def _settle(self) -> None:
        """Deliver to the cloud what has arrived by now."""
        while self._up and self._up[0][0] <= self.now:
            self._cloud.hear(heappop(self._up)[2])

    def _said(self, at_s: float, message: Down) -> None:
        size = len(encode(message))
        self._down.append((self._down_way.arrival(at_s, size), message, size))

    def ensure_connected(self, give_up: Callable[[], bool] = lambda: False) -> Welcome:
        """Connected at once."""
        world = self.world
        return Welcome(
            PROTOCOL_VERSION,
            "simulated",
            IDS,
            b"simulated",
            [EOS],
            1 << 20,
            exits=[1] if world.hint_at else [],
            drafts=world.cloud_draft is not None,
            row_us=[(rows, round(1e3 * world.verify.for_rows(rows))) for rows in ROWS[:-1]] if world.told else [],
            draft_us=round(1e3 * world.cloud_draft.for_rows(1)) if world.told and world.cloud_draft is not None else 0,
        )

    def begin_answer(self, ids: Sequence[int], images: Sequence[bytes]) -> None:
        """There is only one cloud, whatever the prompt."""

    def answer_began(self) -> None:
        """There is no fleet."""

    def end_answer(self) -> None:
        """Nothing else waits for this cloud."""

    def move_on(self) -> None:
        """There is no other one."""

    def next_session(self) -> int:
        """A new session number."""
        self._sessions += 1
        return self._sessions

    def send(self, message: Up) -> int:
        """Send a message; returns its size in bytes."""
        size = len(encode(message))
        self._sent += 1
        heappush(self._up, (self._up_way.arrival(self.now, size), self._sent, message))
        return size

    def receive(self, timeout_s: float) -> tuple[Down, int] | None:
        """The next message, or None after this long."""
        until = self.now + timeout_s
        self._settle()
        while not (self._down and self._down[0][0] <= self.now):
            arrives = self._down[0][0] if self._down else math.inf
            due = min(arrives, self._next(1.0))
            if due > until or self.now >= until:
                self._pass(until, 1.0)
                self._settle()
                return None
            self._pass(due, 1.0)
            self._settle()
        _, message, size = self._down.popleft()
        return message, size

    def reset(self) -> None:
        """Nothing is ever lost in a simulated link."""

    def silent(self, seconds: float) -> LinkLost:
        """Raise an error: a cloud that is silent for this long means a fault in the simulation."""
        return LinkLost(f"the simulated verifier said nothing for {seconds:g} s")


# SPDX-License-Identifier: Apache-2.0
"""A simulated verifier: the real engine's scheduler chooses what shares the next forward; the clock is simulated.

New work is accepted between two forwards. A session reserves all KV cache that it may need; if there is no room, it
waits outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, cast

from cloud_verifier.engine.policy import Policy
from cloud_verifier.engine.scheduler import Scheduler, WaitingSession
from specnav.plan.simulated.pair import SimulatedForwardTimes

if TYPE_CHECKING:
    import simpy


SLACK = 2


@dataclass(frozen=True)
class ReplicaPolicy(Policy):
    """Limits of a verifier, as in `specnav serve`. kv_tokens: capacity of all sessions' KV caches, in tokens."""

    kv_tokens: float = float("inf")


class QueuedSession(Protocol):
    """A session as seen by a verifier. tokens: the most that its KV cache may need. rank, owner, number: read by the
    scheduler.
    """

    tokens: int
    rank: int
    owner: bytes
    number: int

    def ran(self, now_ms: float) -> None:
        """Called when the requested rows have run."""
        ...


@dataclass
class SimulatedRows:
    """Rows that a session requests from a forward, with the properties that the scheduler reads.

    prompt: whether they belong to a prompt, which may be split into chunks. drafts: whether they run through the draft
    model in the cloud. since_ms: time of arrival.
    """

    who: QueuedSession
    rows: int
    prompt: bool = False
    drafts: bool = False
    since_ms: float = 0.0

    @property
    def together_with(self) -> bool:
        """Only rows for the same model share a forward."""
        return self.drafts

    @property
    def last_only(self) -> bool:
        """Whether only the last row's logits are needed: true for a prompt."""
        return self.prompt

    @property
    def divisible(self) -> bool:
        """Whether the rows may be split into chunks."""
        return self.prompt and self.rows > 1

    def divide(self, rows: int) -> tuple[SimulatedRows, SimulatedRows]:
        """Split into the first `rows` rows and the rest."""
        return replace(self, rows=rows), replace(self, rows=self.rows - rows)


@dataclass
class Counted:
    """Counters of all verifiers of a fleet, over the measured time from begin_ms to end_ms.

    wait_ms, waited: total wait of verdicts and streamed tokens before their forwards, and their number. outside_ms,
    outside: likewise of sessions for room in the KV cache. rounds, gained: verdicts and the tokens gained, over the
    whole run.
    """

    begin_ms: float
    end_ms: float
    busy_ms: float = 0.0
    forwards: int = 0
    sessions: int = 0
    rows: int = 0
    wait_ms: float = 0.0
    waited: int = 0
    outside_ms: float = 0.0
    outside: int = 0
    rounds: int = 0
    gained: int = 0

    @property
    def batch(self) -> float:
        """Sessions per forward."""
        return self.sessions / max(1, self.forwards)

    def counts(self, at_ms: float) -> bool:
        """Whether a moment lies in the measured time."""
        return self.begin_ms <= at_ms < self.end_ms

    def ran(self, verified: Sequence[WaitingSession], prompts: int, rows: int, began: float, takes: float) -> None:
        """Count a forward: `verified` sessions that verify or stream, `prompts` prompts, and `rows` rows in all."""
        self.busy_ms += max(0.0, min(began + takes, self.end_ms) - max(began, self.begin_ms))
        if self.counts(began):
            self.forwards += 1
            self.sessions += len(verified) + prompts
            self.rows += rows
            self.wait_ms += sum(max(0.0, began - 1e3 * one.since_s) for one in verified)  # -0.0 by rounding
            self.waited += len(verified)


@dataclass(eq=False)
class SimulatedReplica:
    """One verifier. Its process sleeps until a request arrives. counted: shared by all verifiers of the fleet.

    Requests in transit are kept in a heap instead of one event each. A fleet thus costs one event per forward, not
    several per round.
    """

    env: simpy.Environment
    target: SimulatedForwardTimes
    draft: SimulatedForwardTimes
    policy: ReplicaPolicy
    counted: Counted
    open: int = 0
    pictures_free_ms: float = 0.0
    _held: int = 0
    _outside: deque[tuple[float, QueuedSession, SimulatedRows]] = field(default_factory=deque)
    _coming: list[tuple[float, int, SimulatedRows]] = field(default_factory=list)
    _number: int = 0
    _waiting: list[WaitingSession] = field(default_factory=list)
    _asleep: simpy.Event | None = None
    _asleep_until: float = 0.0

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(self.policy)
        self.env.process(self._run())

    def admit(self, ask: SimulatedRows, at_ms: float) -> None:
        """Accept a session whose prompt arrives at `at_ms`; it counts as open at once, as in the directory."""
        self.open += 1
        who = ask.who
        if self._outside or (self._held and self._held + who.tokens > self.policy.kv_tokens):
            self._outside.append((at_ms, who, ask))
            return
        self._held += who.tokens
        self.comes(ask, at_ms)

    def leave(self, who: QueuedSession) -> None:
        """End a session, and admit sessions that wait outside."""
        self.open -= 1
        self._held -= who.tokens
        now = self.env.now
        while self._outside:
            at_ms, other, ask = self._outside[0]
            if self._held and self._held + other.tokens > self.policy.kv_tokens:
                return
            self._outside.popleft()
            self._held += other.tokens
            if self.counted.counts(now):
                self.counted.outside += 1
                self.counted.outside_ms += max(0.0, now - at_ms)
            self.comes(ask, max(now, at_ms))

    def comes(self, ask: SimulatedRows, at_ms: float) -> None:
        """Schedule a request to arrive at `at_ms`, now or later."""
        ask.since_ms = at_ms
        self._number += 1
        heappush(self._coming, (at_ms, self._number, ask))
        if self._asleep is not None and at_ms < self._asleep_until and not self._asleep.triggered:
            self._asleep.succeed()

    def wants(self, ask: SimulatedRows, now_ms: float) -> None:
        """Queue a request for the next forward, from a session that the cloud continues without the edge."""
        ask.since_ms = now_ms
        self._queue(ask)

    def _queue(self, ask: SimulatedRows) -> None:
        self._waiting.append(WaitingSession(cast(Any, ask.who), cast(Any, ask), ask.since_ms / 1e3))

    def _run(self) -> Generator[simpy.Event, None, None]:
        env, coming = self.env, self._coming
        while True:
            while coming and coming[0][0] <= env.now:
                self._queue(heappop(coming)[2])
            if not self._waiting:
                self._asleep = env.event()
                self._asleep_until = coming[0][0] if coming else float("inf")
                if coming:
                    yield self._asleep | env.timeout(coming[0][0] - env.now)
                else:
                    yield self._asleep
                self._asleep = None
                continue
            picked = self._scheduler.pick(self._waiting, env.now / 1e3, self.open)
            verified = [one for one in picked if not one.need.last_only]
            rows = sum(one.part.rows for one in verified)
            beside = sum(one.part.rows for one in picked) - rows
            model = self.draft if cast(Any, picked[0].need).drafts else self.target
            takes = model.forward_ms(len(verified), rows, beside)
            self.counted.ran(verified, len(picked) - len(verified), rows + beside, env.now, takes)
            yield env.timeout(takes)
            self._scheduler.ran(picked, takes / 1e3)
            self._ran(picked)

    def _ran(self, picked: Sequence[WaitingSession]) -> None:
        """Finish a forward: incomplete prompts stay queued, all other sessions are notified."""
        now = self.env.now
        places = {id(one) for one in picked}
        left = [(one, one.after(cast(Any, None), one.since_s)) for one in picked]
        waits_on = {id(one): rest for one, rest in left if rest is not None}
        self._waiting = [
            waits_on.get(id(one), one)
            for one in self._waiting
            if id(one) not in places or id(one) in waits_on
        ]
        for one, rest in left:
            if rest is None:
                one.work.ran(now)  # type: ignore[attr-defined]


@dataclass
class SimulatedDirectory:
    """Sends a session to the verifier with the fewest open sessions.

    If `local`, it prefers the robot's last verifier, unless that has more than SLACK sessions above the minimum.
    """

    replicas: list[SimulatedReplica]
    local: bool = False
    _last: dict[int, SimulatedReplica] = field(default_factory=dict)
    _turn: int = 0

    def choose(self, robot: int) -> tuple[SimulatedReplica, bool]:
        """(the verifier, whether it served this robot last time)."""
        self._turn = (self._turn + 1) % len(self.replicas)  # ties go to a different verifier each time
        in_turn = chain(self.replicas[self._turn :], self.replicas[: self._turn])
        found, last = min(in_turn, key=attrgetter("open")), self._last.get(robot)
        if self.local and last is not None and last.open <= found.open + SLACK:
            found = last
        self._last[robot] = found
        return found, found is last

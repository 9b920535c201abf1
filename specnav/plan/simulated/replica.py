"""A verifier in the simulation: batched forwards as the real engine runs them (cloud_verifier.engine.scheduler).

Between two forwards it takes in what has come. A forward takes all that waits for it up to a budget of rows, verdicts
and streamed tokens first; prompts come in chunks beside them, and at once where no other session is open. Where a
draft model runs beside the target, the session that has had least of the forwards says whose turn it is. What a session
may come to hold is a budget; who finds no room waits outside.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

from specnav.plan.simulated.times import ForwardTimes

if TYPE_CHECKING:
    import simpy

AGING_MS = 1000.0
"""Who has waited for so long goes first, as in the real engine."""


@dataclass(frozen=True)
class ReplicaPolicy:
    """rows: of a forward at most; chunk: of prompts, while other sessions are open; both as `specnav serve` has them.

    kv_tokens: that the caches of all sessions may hold.
    """

    rows: int = 256
    chunk: int = 64
    kv_tokens: float = float("inf")


class Asker(Protocol):
    """A session, as a verifier sees it. tokens: that it may come to hold. served_ms: what it has had of forwards."""

    tokens: int
    served_ms: float

    def ran(self, now_ms: float, since_ms: float) -> None:
        """What it asked for has run; it came at `since_ms`."""
        ...


@dataclass
class Ask:
    """Rows that a session wants of a forward. prompt: they may come in parts. drafts: they go through the draft model
    beside the target. since_ms: when it came.
    """

    who: Asker
    rows: int
    prompt: bool = False
    drafts: bool = False
    since_ms: float = 0.0


@dataclass
class Counted:
    """What a verifier did in the time that counts. wait_ms: of verdicts and streamed tokens, before their forwards."""

    busy_ms: float = 0.0
    forwards: int = 0
    sessions: int = 0
    rows: int = 0
    wait_ms: float = 0.0
    waited: int = 0
    outside_ms: float = 0.0
    outside: int = 0


class Replica:
    """One verifier. Its process sleeps until something comes: what is on its way is in a heap, not an event each, so
    that a fleet costs an event a forward and not several a round.
    """

    def __init__(
        self, env: simpy.Environment, target: ForwardTimes, draft: ForwardTimes, policy: ReplicaPolicy,
        window: tuple[float, float],
    ) -> None:  # fmt: skip
        """window: when counting begins and ends, ms."""
        self._env = env
        self._target = target
        self._draft = draft
        self._policy = policy
        self._from_ms, self._to_ms = window
        self.open = 0
        self.counted = Counted()
        self._held = 0
        self._most_served = 0.0
        self._outside: deque[tuple[float, Asker, Ask]] = deque()
        self._coming: list[tuple[float, int, Ask]] = []
        self._number = 0
        self._asks: list[Ask] = []
        self._steps: list[Ask] = []
        self._prompts: deque[Ask] = deque()
        self._asleep: simpy.Event | None = None
        self._asleep_until = 0.0
        env.process(self._run())

    def admit(self, ask: Ask, at_ms: float) -> None:
        """A session's prompt arrives at `at_ms`; it counts as open from now on, as the directory has it."""
        self.open += 1
        who = ask.who
        who.served_ms = self._most_served  # who is new begins with the most that anybody has
        if self._outside or (self._held and self._held + who.tokens > self._policy.kv_tokens):
            self._outside.append((at_ms, who, ask))
            return
        self._held += who.tokens
        self.comes(ask, at_ms)

    def leave(self, who: Asker) -> None:
        """A session has ended; who waits outside may come in."""
        self.open -= 1
        self._held -= who.tokens
        now = self._env.now
        while self._outside:
            at_ms, other, ask = self._outside[0]
            if self._held and self._held + other.tokens > self._policy.kv_tokens:
                return
            self._outside.popleft()
            self._held += other.tokens
            if self._counts(now):
                self.counted.outside += 1
                self.counted.outside_ms += max(0.0, now - at_ms)
            self.comes(ask, max(now, at_ms))

    def comes(self, ask: Ask, at_ms: float) -> None:
        """What a session wants arrives at `at_ms`, now or later."""
        ask.since_ms = at_ms
        self._number += 1
        heappush(self._coming, (at_ms, self._number, ask))
        if self._asleep is not None and at_ms < self._asleep_until and not self._asleep.triggered:
            self._asleep.succeed()

    def wants(self, ask: Ask, now_ms: float) -> None:
        """A session that goes on by itself wants this of the next forward."""
        ask.since_ms = now_ms
        self._queue(ask)

    def _queue(self, ask: Ask) -> None:
        (self._prompts if ask.prompt else self._steps if ask.drafts else self._asks).append(ask)

    def _run(self) -> Generator[simpy.Event, None, None]:
        env, coming = self._env, self._coming
        while True:
            while coming and coming[0][0] <= env.now:
                self._queue(heappop(coming)[2])
            if not (self._asks or self._steps or self._prompts):
                self._asleep = env.event()
                self._asleep_until = coming[0][0] if coming else float("inf")
                if coming:
                    yield self._asleep | env.timeout(coming[0][0] - env.now)
                else:
                    yield self._asleep
                self._asleep = None
                continue
            draft = self._draft_model_is_next()
            picked, prompt_rows = (self._fitting(self._steps), {}) if draft else self._pick()
            sessions = len(picked)
            rows = sum(ask.rows for ask in picked)
            beside = sum(prompt_rows.values())
            takes = (self._draft if draft else self._target).forward_ms(sessions, rows, beside)
            began = env.now
            self._count(picked, len(prompt_rows), rows + beside, began, takes)
            yield env.timeout(takes)
            self._serve(picked, prompt_rows, takes / (rows + beside))
            for ask in picked:
                ask.who.ran(env.now, ask.since_ms)
            self._prompts_ran(prompt_rows)

    def _draft_model_is_next(self) -> bool:
        """Whether the one that has had least wants the draft model, or the one that has waited too long."""
        if not self._steps:
            return False
        first = min(itertools.chain(self._steps, self._asks, self._prompts), key=self._order)
        return first.drafts

    def _order(self, ask: Ask) -> tuple[int, float]:
        return -int((self._env.now - ask.since_ms) / AGING_MS), ask.who.served_ms

    def _serve(self, picked: list[Ask], parts: dict[int, int], row_ms: float) -> None:
        """Count what each has had of a forward."""
        had = [(ask.who, ask.rows) for ask in picked]
        had += [(ask.who, parts[place]) for place, ask in enumerate(itertools.islice(self._prompts, len(parts)))]
        for who, rows in had:
            who.served_ms += rows * row_ms
            self._most_served = max(self._most_served, who.served_ms)

    def _fitting(self, queue: list[Ask]) -> list[Ask]:
        """Those in order that fit into a forward; they leave the queue, others stay."""
        room = self._policy.rows
        picked: list[Ask] = []
        left: list[Ask] = []
        for ask in queue:
            if ask.rows <= room or not picked:
                room -= ask.rows
                picked.append(ask)
            else:
                left.append(ask)
        queue[:] = left
        return picked

    def _pick(self) -> tuple[list[Ask], dict[int, int]]:
        """What comes into the target's next forward, and rows of prompts by their place in the queue."""
        if self.open == 1 and not self._asks and self._prompts:
            return [], {0: self._prompts[0].rows}
        picked = self._fitting(self._asks)
        room = self._policy.rows - sum(ask.rows for ask in picked)
        chunk = min(room, self._policy.chunk) if self.open > 1 else room
        parts: dict[int, int] = {}
        for place, ask in enumerate(self._prompts):
            if chunk <= 0 and (picked or parts):
                break
            parts[place] = min(ask.rows, max(chunk, 1))
            chunk -= parts[place]
        return picked, parts

    def _prompts_ran(self, parts: dict[int, int]) -> None:
        """Rows of prompts are in; those that are complete go on."""
        if not parts:
            return
        now = self._env.now
        waiting = [self._prompts.popleft() for _ in range(len(parts))]
        left: list[Ask] = []
        for place, ask in enumerate(waiting):
            ask.rows -= parts[place]
            if ask.rows:
                left.append(ask)
            else:
                ask.who.ran(now, ask.since_ms)
        self._prompts.extendleft(reversed(left))

    def _counts(self, at_ms: float) -> bool:
        return self._from_ms <= at_ms < self._to_ms

    def _count(self, picked: list[Ask], prompts: int, rows: int, began: float, takes: float) -> None:
        waits = sum(began - ask.since_ms for ask in picked)
        counted = self.counted
        counted.busy_ms += max(0.0, min(began + takes, self._to_ms) - max(began, self._from_ms))
        if self._counts(began):
            counted.forwards += 1
            counted.sessions += len(picked) + prompts
            counted.rows += rows
            counted.wait_ms += waits
            counted.waited += len(picked)


@dataclass
class Directory:
    """Sends a session to the verifier with the fewest; with locality to the robot's last one, while that has no more
    than `slack` sessions over the fewest.
    """

    replicas: list[Replica]
    local: bool = False
    slack: int = 2
    _last: dict[int, Replica] = field(default_factory=dict)
    _turn: int = 0

    def choose(self, robot: int) -> tuple[Replica, bool]:
        """The verifier, and whether it served this robot the last time."""
        replicas, count = self.replicas, len(self.replicas)
        self._turn = (self._turn + 1) % count  # of equals it is another one each time
        least = self._turn
        fewest = replicas[least].open
        if fewest:
            for step in range(1, count):
                place = (self._turn + step) % count
                if replicas[place].open < fewest:
                    least, fewest = place, replicas[place].open
                    if not fewest:
                        break
        found, last = replicas[least], self._last.get(robot)
        if self.local and last is not None and last.open <= fewest + self.slack:
            found = last
        self._last[robot] = found
        return found, found is last

"""What the engine is asked to do, and the queue it takes it from.

Drafts of one session that wait together are taken together, as one draft: one forward judges them all.
"""

from __future__ import annotations

import queue
from collections import deque
from dataclasses import dataclass, replace

import msgspec

from specdec.drafting import ChainDrafter
from specdec.link.wire import AloneUp, DraftUp, HiddenUp, More, Open, SampledUp
from specdec.verifying import Verifier

SessionKey = tuple[bytes, int]
"""Who asks (the socket's identity of the client) and the client's own number for the session."""


@dataclass(frozen=True)
class OpenTask:
    """A prompt to prefill."""

    key: SessionKey
    message: Open
    arrived_s: float


@dataclass(frozen=True)
class VerifyTask:
    """A draft to judge, or a question about the verdict on the last one."""

    key: SessionKey
    message: DraftUp | SampledUp | More
    arrived_s: float


@dataclass(frozen=True)
class HiddenTask:
    """Layer split: what the edge's layers made of the prompt or of a token."""

    key: SessionKey
    message: HiddenUp
    arrived_s: float


@dataclass(frozen=True)
class AloneTask:
    """The cloud is to go on with a session alone."""

    key: SessionKey
    message: AloneUp
    arrived_s: float


@dataclass(frozen=True)
class StepTask:
    """One more token, or round, for a session that the cloud decodes alone. drafter: its own, if any.

    stream: which of the session's times alone this belongs to; a draft ends one.
    """

    key: SessionKey
    verifier: Verifier
    arrived_s: float
    stream: int = 0
    drafter: ChainDrafter | None = None
    gamma: int = 0


@dataclass(frozen=True)
class CloseTask:
    """A session to forget."""

    key: SessionKey


@dataclass(frozen=True)
class StopTask:
    """No more work."""


Task = OpenTask | VerifyTask | HiddenTask | AloneTask | StepTask | CloseTask | StopTask


class TaskQueue:
    """First come, first served; `put` from any thread, `get` and `poll` from one."""

    def __init__(self) -> None:
        self._arriving: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._waiting: deque[Task] = deque()

    def put(self, task: Task) -> None:
        """Hand over a task."""
        self._arriving.put(task)

    def get(self) -> Task:
        """The next task; waits for one. A draft brings along those that go on right behind it."""
        if not self._waiting:
            self._waiting.append(self._arriving.get())
        return self._next()

    def poll(self) -> Task | None:
        """The same without waiting; None where nothing is there."""
        self._take_arrivals()
        return self._next() if self._waiting else None

    @property
    def empty(self) -> bool:
        """True where `poll` would give None."""
        return not self._waiting and self._arriving.empty()

    def _next(self) -> Task:
        task = self._waiting.popleft()
        if isinstance(task, VerifyTask):
            self._take_arrivals()
            return self._with_those_behind(task)
        return task

    def _take_arrivals(self) -> None:
        while True:
            try:
                self._waiting.append(self._arriving.get_nowait())
            except queue.Empty:
                return

    def _with_those_behind(self, task: VerifyTask) -> VerifyTask:
        others: deque[Task] = deque()
        open_ended = True
        for other in self._waiting:
            if isinstance(other, StepTask | StopTask) or other.key != task.key or not open_ended:
                others.append(other)
                continue
            joined = _join(task, other)
            open_ended = joined is not None
            if joined is None:
                others.append(other)
            else:
                task = joined
        self._waiting = others
        return task


def _join(first: VerifyTask, second: Task) -> VerifyTask | None:
    """Both as one draft, or None where the second does not go on right behind the first."""
    if not isinstance(second, VerifyTask) or type(first.message) is not type(second.message):
        return None
    before, after = first.message, second.message
    if isinstance(before, More) or isinstance(after, More):
        return None
    if before.epoch != after.epoch or after.base != before.base + len(before.ids):
        return None
    ids = [*before.ids, *after.ids]
    if isinstance(before, SampledUp) and isinstance(after, SampledUp):
        if after.fix is not None:
            return None
        message = msgspec.structs.replace(before, round=after.round, ids=ids, q=before.q + after.q)
        return replace(first, message=message)
    if isinstance(before, DraftUp) and isinstance(after, DraftUp):
        if before.parents is not None or after.parents is not None:
            return None
        return replace(first, message=msgspec.structs.replace(before, round=after.round, ids=ids))
    return None

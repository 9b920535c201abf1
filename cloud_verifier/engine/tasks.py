"""What the engine is asked to do, and the queue it takes it from.

Drafts of one session that wait together are taken together, as one draft: one forward judges them all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
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
class PauseTask:
    """A client does not read: none of its sessions goes on alone until it does (paused False). key: (client, 0)."""

    key: SessionKey
    paused: bool


@dataclass(frozen=True)
class StopTask:
    """No more work."""


Task = OpenTask | VerifyTask | HiddenTask | AloneTask | StepTask | CloseTask | PauseTask | StopTask


class TaskQueue:
    """First come, first served; `put` from any thread, `get` and `poll` from one.

    A task that opens or closes a session takes the place of what waits for that session.
    """

    def __init__(self, on_out: Callable[[Task], None] = lambda task: None) -> None:
        """on_out: called once with every task that was put, when it waits no longer: taken, joined or replaced."""
        self._waiting: deque[Task] = deque()
        self._there = threading.Condition()
        self._on_out = on_out

    def put(self, task: Task) -> None:
        """Hand over a task."""
        replaced: list[Task] = []
        with self._there:
            if isinstance(task, OpenTask | CloseTask):
                replaced = [other for other in self._waiting if _is_of(other, task.key)]
                if replaced:
                    self._waiting = deque(other for other in self._waiting if not _is_of(other, task.key))
            self._waiting.append(task)
            self._there.notify()
        for other in replaced:
            self._on_out(other)

    def get(self) -> Task:
        """The next task; waits for one. A draft brings along those that go on right behind it."""
        with self._there:
            while not self._waiting:
                self._there.wait()
            task, taken = self._next()
        return self._out(task, taken)

    def poll(self) -> Task | None:
        """The same without waiting; None where nothing is there."""
        with self._there:
            if not self._waiting:
                return None
            task, taken = self._next()
        return self._out(task, taken)

    @property
    def empty(self) -> bool:
        """True where `poll` would give None."""
        return not self._waiting

    def _out(self, task: Task, taken: list[Task]) -> Task:
        for one in taken:
            self._on_out(one)
        return task

    def _next(self) -> tuple[Task, list[Task]]:
        """The next task, and those it is made of."""
        task = self._waiting.popleft()
        if not isinstance(task, VerifyTask):
            return task, [task]
        taken: list[Task] = [task]
        return self._with_those_behind(task, taken), taken

    def _with_those_behind(self, task: VerifyTask, taken: list[Task]) -> VerifyTask:
        others: deque[Task] = deque()
        open_ended = True
        for other in self._waiting:
            if isinstance(other, StepTask | PauseTask | StopTask) or other.key != task.key or not open_ended:
                others.append(other)
                continue
            joined = _join(task, other)
            open_ended = joined is not None
            if joined is None:
                others.append(other)
            else:
                task = joined
                taken.append(other)
        self._waiting = others
        return task


def _is_of(task: Task, key: SessionKey) -> bool:
    return not isinstance(task, PauseTask | StopTask) and task.key == key


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

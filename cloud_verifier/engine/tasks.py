# SPDX-License-Identifier: Apache-2.0
"""The engine's tasks, and the queues in which they wait.

Consecutive drafts of one session that wait together are joined into one draft and judged in one forward pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import msgspec

from cloud_verifier.logs import EventLog
from cloud_verifier.observing.counts import SessionUse
from specdec.link.wire import AloneUp, DraftUp, HiddenUp, More, Open, SampledUp, Up

Draft = DraftUp | SampledUp
SessionKey = tuple[bytes, int]
"""The client's socket identity, and the client's own number for the session."""
LONGEST_JOINED = 64
"""Most tokens of joined drafts: otherwise one client could fill a context, and a forward pass, at once."""


@dataclass(frozen=True)
class OpenTask:
    """A prompt to prefill. rank: of the client's class, 0 is served first. owner: who counts as one client, see
    `Client.owner`. scope: prompts of different scopes share nothing. use: counts what the session uses; None: it is
    not counted.
    """

    key: SessionKey
    message: Open
    arrived_s: float
    rank: int = 1
    owner: bytes = b""
    scope: bytes = b""
    use: SessionUse | None = None


@dataclass(frozen=True)
class SessionTask:
    """Work for an open session: a draft to judge; a question about its last verdict; hidden states of the prompt or of
    a token (layer split); or a request to decode without drafts.
    """

    key: SessionKey
    message: Draft | More | HiddenUp | AloneUp
    arrived_s: float
    owner: bytes = b""


@dataclass(frozen=True)
class CloseTask:
    """A session to forget."""

    key: SessionKey


@dataclass(frozen=True)
class PauseTask:
    """A client stopped reading (paused), or reads again: meanwhile no session of it streams. key: (client, 0)."""

    key: SessionKey
    paused: bool


@dataclass(frozen=True)
class StopTask:
    """No more work."""


Task = OpenTask | SessionTask | CloseTask | PauseTask | StopTask


class SessionQueue:
    """Tasks that wait for one session, first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[SessionTask] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, task: SessionTask) -> None:
        """Append a task."""
        self._waiting.append(task)

    def get(self) -> tuple[SessionTask, list[SessionTask]]:
        """The next task, and the tasks it was made of: a draft is joined with drafts that continue it directly.

        Raises IndexError if nothing waits.
        """
        task = self._waiting.popleft()
        taken = [task]
        drafts = [task.message] if isinstance(task.message, DraftUp | SampledUp) else []
        while drafts and self._waiting:
            following = self._waiting[0].message
            if not follows(following, drafts[-1]):
                break
            if sum(len(one.ids) for one in drafts) + len(following.ids) > LONGEST_JOINED:
                break
            drafts.append(following)
            taken.append(self._waiting.popleft())
        if len(drafts) > 1:
            task = replace(task, message=joined(drafts, drafts[0]))
        return task, taken

    def drop(self) -> list[SessionTask]:
        """Empty the queue; returns the tasks that waited."""
        dropped, self._waiting = list(self._waiting), deque()
        return dropped


class QueuedSession:
    """What every engine knows of a session.

    number: counts sessions in order of opening. owner: the client whose limits it counts against. use: statistics and
    the log of the session. tasks: what waits for it. tokens: what its cache may come to hold. batch: most sessions that
    shared a forward pass of its current work, itself included; the engine updates it.
    """

    def __init__(self, opening: OpenTask, log: EventLog, number: int) -> None:
        """log: of the engine."""
        self.key = opening.key
        self.number = number
        self.owner = opening.owner or opening.key[0]
        self.use = opening.use or SessionUse("", log.bind(session=opening.key[1]))
        self.tasks = SessionQueue()
        self.tokens = 0
        self.batch = 1


def without_the_superseded(tasks: Sequence[Task]) -> tuple[list[Task], list[Task]]:
    """The tasks to do, and those that a later task makes obsolete by reopening or closing their session."""
    over: set[SessionKey] = set()
    kept: list[Task] = []
    dropped: list[Task] = []
    for task in reversed(tasks):
        if not isinstance(task, PauseTask | StopTask) and task.key in over:
            dropped.append(task)
            continue
        kept.append(task)
        if isinstance(task, OpenTask | CloseTask):
            over.add(task.key)
    return kept[::-1], dropped[::-1]


def follows(after: Up, before: Draft) -> TypeGuard[Draft]:
    """Whether a message is a draft that directly continues another one, so that both can be joined; no tree does."""
    if isinstance(before, DraftUp) and isinstance(after, DraftUp):
        fits = before.parents is None and after.parents is None
    elif isinstance(before, SampledUp) and isinstance(after, SampledUp):
        fits = after.fix is None
    else:
        return False
    return fits and (after.epoch, after.base) == (before.epoch, before.base + len(before.ids))


def joined(drafts: Sequence[Draft], like: Draft) -> Draft:
    """Drafts that continue one another as one, for the last one's round. like: the draft with the trace to keep."""
    first, round_ = drafts[0], drafts[-1].round
    ids = [token for one in drafts for token in one.ids]
    if isinstance(first, SampledUp):
        q = b"".join(one.q for one in drafts if isinstance(one, SampledUp))
        return msgspec.structs.replace(like, round=round_, base=first.base, ids=ids, q=q, fix=first.fix)
    return msgspec.structs.replace(like, round=round_, base=first.base, ids=ids)

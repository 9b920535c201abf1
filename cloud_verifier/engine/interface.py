# SPDX-License-Identifier: Apache-2.0
"""What every engine is, whatever runs its forward passes: the interface for the server, and all that engines share.

`tests/engine_contract` tests what every engine must do. An engine uses no sockets. It may support less than another,
and reports that, so that edges choose a method that works.
"""

from __future__ import annotations

import contextlib
import queue
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from cloud_verifier.engine.memory import KvBudget, OverBudget, OverWholeBudget
from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    QueuedSession,
    SessionKey,
    SessionTask,
    StopTask,
    Task,
    without_the_superseded,
)
from cloud_verifier.logs import EventLog
from cloud_verifier.observing.counts import BEAT_S, EngineLoad, Heartbeats, SessionUse
from specdec.errors import ModelError, OptionsError, ProtocolError
from specdec.isolation.accounts import Accounts, OverSpent
from specdec.isolation.workers import JobCancelled
from specdec.link.wire import (
    ERROR_BUSY,
    ERROR_INTERNAL,
    ERROR_REFUSED,
    ERROR_TOO_LARGE,
    LACKS_GRAMMARS,
    LACKS_SAMPLED,
    LACKS_SEVERAL,
    LACKS_SPLIT,
    LACKS_TREES,
    Down,
    ErrorDown,
)
from specdec.tracing import Tracing
from specdec.verdict_log import LoggedAnswer

Session = TypeVar("Session", bound=QueuedSession)
Keep = Callable[[LoggedAnswer], None]
Outbox = Callable[[SessionKey, Down, bool], None]
"""Takes (session, reply, whether the session is over)."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine supports besides chains of ids and decoding without drafts.

    exits: layers with early exits, which make hints. drafts: drafting in the cloud. trees: token trees. split: running
    only the upper layers. sampled: rejection sampling with the draft's q. several: several drafts in flight.
    grammars: answers constrained by a grammar.
    """

    exits: tuple[int, ...] = ()
    drafts: bool = False
    trees: bool = True
    split: bool = True
    sampled: bool = True
    several: bool = True
    grammars: bool = True

    @property
    def lacks(self) -> list[str]:
        """What it does not support, in the wire's terms."""
        told = {
            LACKS_TREES: self.trees,
            LACKS_SPLIT: self.split,
            LACKS_SAMPLED: self.sampled,
            LACKS_SEVERAL: self.several,
            LACKS_GRAMMARS: self.grammars,
        }
        return [word for word, can in told.items() if not can]


@dataclass(frozen=True)
class EngineEnvironment:
    """What an engine is given.

    outbox: takes replies, in the thread that runs the engine. wake: called, from any thread, when there is work that
    did not come through `submit`. on_out: called once with every task when it stops waiting. tracing: where spans go;
    None: no tracing. fail: called, from any thread, with a one-line reason when the engine cannot continue. keep:
    stores finished answers; None: they are not stored. beats: heartbeats of the engine's loops.
    """

    outbox: Outbox
    log: EventLog
    wake: Callable[[], None] = lambda: None
    on_out: Callable[[Task], None] = lambda task: None
    tracing: Tracing | None = None
    fail: Callable[[str], None] = lambda why: None
    keep: Keep | None = None
    beats: Heartbeats = field(default_factory=Heartbeats)


class SessionEngine(ABC, Generic[Session]):
    """Owns every answer in progress. One thread does its work: in `run`, or in `work_off` between other duties.

    A subclass says how sessions open, work and end; taking in tasks, room for caches and failures are the same for all.

    can: what it supports; never changes. load: statistics of its work; readable from any thread. budget: which sessions
    are admitted. accounts: of its clients in worker processes.
    """

    can: Capabilities

    def __init__(self, environment: EngineEnvironment, budget: KvBudget, clock: Callable[[], float]) -> None:
        self._environment = environment
        self._clock = clock
        self.load = EngineLoad(clock())
        self.budget = budget
        self.accounts = Accounts()
        self._arriving: queue.SimpleQueue[Task | Callable[[], None]] = queue.SimpleQueue()
        self._arrived: deque[Task] = deque()  # to take in; those after one that failed wait for the next pass
        self._sessions: dict[SessionKey, Session] = {}  # the one that has been idle longest comes first
        self._paused: set[bytes] = set()
        self._starved: list[Session] = []
        self._opened = 0
        self._stopping = False

    @property
    @abstractmethod
    def _busy(self) -> bool:
        """Whether there is work to do without new tasks."""

    @abstractmethod
    def _open(self, task: OpenTask) -> None:
        """Start the `_opened`th session."""

    @abstractmethod
    def _take_up(self, session: Session) -> None:
        """Begin what a session has to do, unless it is at work already."""

    @abstractmethod
    def _advance(self) -> None:
        """Run one forward pass if any session needs one."""

    @abstractmethod
    def _drop_cache(self, session: Session) -> bool:
        """Take a session's cache away until its next request; False if it is not idle."""

    @abstractmethod
    def _release(self, session: Session) -> None:
        """Give up all that a session holds: it has ended."""

    def _is_lost(self) -> bool:
        """Whether the engine can do no more work after an error; the server then ends."""
        return False

    @property
    def idle(self) -> bool:
        """True if nothing is waiting."""
        return not self._busy and not self._arrived and self._arriving.empty()

    def submit(self, task: Task) -> None:
        """Queue a task, from any thread. Tasks of one session keep their order; a failure ends only its own session."""
        self._arriving.put(task)

    def run(self) -> None:
        """Work until stop()."""
        while not self._stopping:
            self._environment.beats.mark("engine")
            first = None
            if not self._busy and not self._arrived:
                try:
                    first = self._arriving.get(timeout=BEAT_S)
                except queue.Empty:
                    continue
            self._work_off(first)
        self._environment.beats.end("engine")

    def work_off(self) -> None:
        """Take in new tasks, and run one forward pass if any session needs one."""
        self._work_off()

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread. Unanswered requests are dropped."""
        self._stopping = True
        self._arriving.put(StopTask())

    def tell_prices(self, row_us: Sequence[tuple[int, int]]) -> None:
        """Set how long forward passes take, as (rows, microseconds) pairs; ignored by an engine without use for it."""

    def kv_admitted(self) -> dict[SessionKey, int]:
        """Bytes of KV cache that each session may come to hold, possibly slightly outdated; from any thread."""
        return self.budget.admitted.copy()

    def gauges(self) -> dict[str, float]:
        """Current values of `observing.metrics.GAUGES`; from any thread."""
        return self.budget.gauges()

    def counters(self) -> dict[str, float]:
        """Current values of `observing.metrics.COUNTERS`; from any thread."""
        return {"kv_evictions": self.budget.evictions}

    def _work_off(self, first: Task | Callable[[], None] | None = None) -> None:
        try:
            self._take_arrivals(first)
            self._advance()
        except Exception as error:  # not one session's fault: nobody can tell which answers are sound
            if self._stopping:  # what a session would need is closed, and the server has told every client so
                return
            if self._is_lost():
                self._stopping = True
                return
            log = self._environment.log
            log.error("engine_failed", sessions=len(self._sessions), traceback=log.trace_of(error))
            reason = f"the verifier failed ({type(error).__name__}): open the session again"
            for session in list(self._sessions.values()):
                self._end(session, ERROR_INTERNAL, reason)

    def _take_arrivals(self, first: Task | Callable[[], None] | None) -> None:
        """Take in all that waits now: tasks, and calls that other threads ask for. first: was taken out already."""
        with contextlib.suppress(queue.Empty):
            one = first or self._arriving.get_nowait()
            while True:
                if isinstance(one, Task):
                    self._arrived.append(one)
                else:
                    one()
                one = self._arriving.get_nowait()
        kept, dropped = without_the_superseded(self._arrived)
        self._arrived = deque(kept)
        for task in dropped:
            self._environment.on_out(task)
        while self._arrived:
            self._take(self._arrived.popleft())

    def _take(self, task: Task) -> None:
        if isinstance(task, SessionTask):
            session = self._sessions.get(task.key)
            if session is None:  # closed meanwhile
                self._environment.on_out(task)
                return
            session.tasks.put(task)
            self._take_up(session)
        elif isinstance(task, OpenTask):
            self._forget(task.key)
            self._opened += 1
            self._open(task)
        elif isinstance(task, CloseTask):
            self._environment.on_out(task)
            self._forget(task.key)
        elif isinstance(task, PauseTask):
            self._environment.on_out(task)
            client = task.key[0]
            if task.paused:
                self._paused.add(client)
            else:
                self._paused.discard(client)
            for session in [one for key, one in self._sessions.items() if key[0] == client]:
                self._take_up(session)

    def _make_room(self, session: Session, needed: int) -> bool:
        """Take KV budget for a session, evicting idle sessions if necessary. needed: bytes. False without room."""
        if not self.budget.fits(needed):
            for other in list(self._sessions.values()):
                if other is session or other.key not in self.budget.admitted:
                    continue
                if self._evict(other) and self.budget.fits(needed):
                    break
            else:
                return False
        self.budget.take(session.key, needed)
        return True

    def _evict(self, session: Session) -> bool:
        if not self._drop_cache(session):
            return False
        self.budget.give_back(session.key)
        self.budget.evictions += 1
        session.use.log.info("evicted", tokens=session.tokens)
        return True

    def _starve(self, session: Session) -> None:
        """Have a session wait for KV room until another one ends or has nothing to do."""
        if session not in self._starved:
            self._starved.append(session)

    def _restored(self, session: Session) -> None:
        """An evicted session has room again."""
        self.load.restored += 1
        session.use.log.info("restored")

    def _rested(self, session: Session) -> None:
        """A session has nothing to do: it is now the most recently idle one."""
        self._sessions[session.key] = self._sessions.pop(session.key)

    def _feed_the_starved(self) -> None:
        """Retry the sessions that wait for KV room: a session has ended or become idle."""
        starved, self._starved = self._starved, []
        for session in starved:
            if self._sessions.get(session.key) is session:
                self._take_up(session)

    def _fail(self, session: Session, error: Exception) -> None:
        """End a session after an error of its own."""
        self._end(session, *failure_of(error, session.use))

    def _end(self, session: Session, code: str, reason: str) -> None:
        session.use.ended_with(code)
        self._forget(session.key)
        error = ErrorDown(session.key[1], code, reason[:1900])
        self._environment.outbox(session.key, error, True)

    def _forget(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        for task in session.tasks.drop():
            self._environment.on_out(task)
        self._release(session)
        self.budget.give_back(key)
        self._feed_the_starved()


def failure_of(error: Exception, use: SessionUse) -> tuple[str, str]:
    """The wire's error code and one line of reason for a failed session; also logs it."""
    if isinstance(error, OverWholeBudget):
        code = ERROR_TOO_LARGE
    elif isinstance(error, OverBudget | OverSpent | JobCancelled):
        code = ERROR_BUSY
    elif isinstance(error, ModelError | OptionsError | ProtocolError):
        code = ERROR_REFUSED
    else:
        use.log.error("session_failed", traceback=use.log.trace_of(error))
        return ERROR_INTERNAL, f"the verifier failed on this session ({type(error).__name__})"
    use.log.warning(code, reason=str(error))
    return code, str(error)


AnyEngine: TypeAlias = SessionEngine[Any]
MakeEngine = Callable[[EngineEnvironment], AnyEngine]

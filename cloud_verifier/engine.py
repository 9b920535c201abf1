"""The engine: one thread that owns every answer in progress and runs one forward at a time.

It takes tasks from a queue, first come first served, and hands replies to an outbox. A session's failure ends
that session and nothing else. It knows no sockets; time comes from a clock it is given.
"""

from __future__ import annotations

import queue
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from cloud_verifier.logs import EventLog
from specdec.drafting import Draft, Drafter
from specdec.errors import ModelError, ProtocolError
from specdec.link.convert import q_from_wire, row_to_wire, sampling_from_wire
from specdec.link.wire import (
    ERROR_INTERNAL,
    ERROR_REFUSED,
    Down,
    DraftUp,
    ErrorDown,
    More,
    Open,
    Opened,
    RowDown,
    SampledUp,
    Tokens,
    VerdictDown,
)
from specdec.models import LoadedModel, Prompt
from specdec.sampling.recovery import Recovery
from specdec.verifying import SampledVerdict, SampledVerifier, Verifier

SessionKey = tuple[bytes, int]
"""Who asks (the socket's identity of the client) and the client's own number for the session."""

Outbox = Callable[[SessionKey, Down, bool], None]
"""Takes (session, reply, whether the session is over)."""


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
class StepTask:
    """One more token, or round, for a session that the cloud decodes alone. drafter: its own, if any."""

    key: SessionKey
    verifier: Verifier
    arrived_s: float
    drafter: Drafter | None = None
    gamma: int = 0


@dataclass(frozen=True)
class CloseTask:
    """A session to forget."""

    key: SessionKey


@dataclass(frozen=True)
class StopTask:
    """No more work."""


Task = OpenTask | VerifyTask | StepTask | CloseTask | StopTask


class Engine:
    """Runs forwards; made to be the target of one thread: `run()` until stop()."""

    def __init__(
        self,
        model: LoadedModel,
        outbox: Outbox,
        log: EventLog,
        draft_model: LoadedModel | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._draft_model = draft_model
        self._outbox = outbox
        self._log = log
        self._clock = clock
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._verifiers: dict[SessionKey, Verifier] = {}
        self._stopping = False

    def submit(self, task: Task) -> None:
        """Hand over a task, from any thread."""
        self._tasks.put(task)

    def stop(self) -> None:
        """End after the forward that is running now, from any thread."""
        self._stopping = True
        self._tasks.put(StopTask())

    def run(self) -> None:
        """Work until stop()."""
        while True:
            task = self._tasks.get()
            if self._stopping or isinstance(task, StopTask):
                return
            if isinstance(task, CloseTask):
                self._verifiers.pop(task.key, None)
                continue
            try:
                self._work(task)
            except (ModelError, ProtocolError) as error:
                self._log.warning("refused", session=task.key[1], reason=str(error))
                self._end(task.key, ERROR_REFUSED, str(error))
            except Exception as error:  # one session's fault must not end the others' (TRAPS 20)
                self._log.error("session_failed", session=task.key[1], traceback=traceback.format_exc())
                self._end(
                    task.key, ERROR_INTERNAL, f"the verifier failed on this session ({type(error).__name__})"
                )

    def _end(self, key: SessionKey, code: str, reason: str) -> None:
        self._verifiers.pop(key, None)
        self._outbox(key, ErrorDown(key[1], code, reason[:1900]), True)

    def _work(self, task: OpenTask | VerifyTask | StepTask) -> None:
        if isinstance(task, OpenTask):
            self._open(task)
        elif isinstance(task, VerifyTask):
            self._verify(task)
        elif self._verifiers.get(task.key) is task.verifier:
            self._step(task)

    def _open(self, task: OpenTask) -> None:
        message = task.message
        started = self._clock()
        verifier = self._new_verifier(message)
        token = verifier.open(Prompt(tuple(message.ids), tuple(message.images)), message.history)
        verify_us, queue_us = self._times(task.arrived_s, started)
        self._verifiers[task.key] = verifier
        self._outbox(task.key, Opened(message.session, token, verifier.limit, verify_us, queue_us), False)
        if message.stream and not verifier.finished:
            drafter = self._new_drafter(message) if message.speculate else None
            self.submit(StepTask(task.key, verifier, self._clock(), drafter, message.speculate))

    def _verify(self, task: VerifyTask) -> None:
        verifier = self._verifiers.get(task.key)
        if verifier is None:
            return  # closed meanwhile
        message = task.message
        started = self._clock()
        if isinstance(message, DraftUp):
            if message.epoch < verifier.epoch:
                return  # it assumed what a verdict has broken since: the edge expects no answer
            parents = None if message.parents is None else tuple(message.parents)
            judgement = verifier.verify(Draft(message.base, tuple(message.ids), parents))
            verdict = SampledVerdict(judgement.last, judgement.token)
        elif not isinstance(verifier, SampledVerifier):
            raise ProtocolError("rejection sampling was not agreed on when the session was opened")
        elif isinstance(message, SampledUp):
            q = q_from_wire(message.q, len(message.ids), self._model.vocab_size)
            verdict = verifier.verify_sampled(Draft(message.base, tuple(message.ids)), q, message.fix)
        else:
            verdict = SampledVerdict(verifier.rejected_at, None, verifier.more())
        times = self._times(task.arrived_s, started)
        self._outbox(task.key, _verdict_message(message.session, message.round, verdict, times), False)

    def _new_verifier(self, message: Open) -> Verifier:
        options = sampling_from_wire(message.sampling)
        recovery = Recovery(message.recovery)
        if recovery is Recovery.NOISE:
            return Verifier(self._model, options)
        if message.stream:
            raise ProtocolError("a streamed answer has no drafts to reject: open it without recovery")
        return SampledVerifier(self._model, options, recovery, message.recovery_size)

    def _new_drafter(self, message: Open) -> Drafter:
        if self._draft_model is None:
            raise ProtocolError("this verifier has no draft model: start it with --draft-model")
        drafter = Drafter(self._draft_model, sampling_from_wire(message.sampling))
        drafter.prefill(Prompt(tuple(message.ids), tuple(message.images)))
        return drafter

    def _step(self, task: StepTask) -> None:
        started = self._clock()
        verifier = task.verifier
        base = len(verifier.answer)
        drafted = 0
        if task.drafter is None:
            verifier.step()
        else:
            draft = task.drafter.chain(verifier.answer, min(task.gamma, verifier.limit - base - 1))
            drafted = len(draft.ids)
            verifier.verify(draft)
        times = self._times(task.arrived_s, started)
        self._outbox(task.key, Tokens(task.key[1], base, verifier.answer[base:], *times, drafted), False)
        if not verifier.finished:
            self.submit(replace(task, arrived_s=self._clock()))

    def _times(self, arrived: float, started: float) -> tuple[int, int]:
        """Microseconds of work, and of waiting before it."""
        return int((self._clock() - started) * 1e6), max(0, int((started - arrived) * 1e6))


def _verdict_message(
    session: int, round_: int, verdict: SampledVerdict, times: tuple[int, int]
) -> VerdictDown | RowDown:
    if verdict.token is not None:
        return VerdictDown(session, round_, verdict.accepted, verdict.token, *times)
    assert verdict.row is not None
    return row_to_wire(session, round_, verdict.accepted, verdict.row, *times)

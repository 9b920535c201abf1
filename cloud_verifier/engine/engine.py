"""The engine: owns every answer in progress and runs one forward at a time, all in one thread.

It takes tasks from a queue, first come first served, and hands replies to an outbox. A session's failure ends
that session and nothing else. It knows no sockets; time comes from a clock it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from cloud_verifier.engine.hints import SessionHinting
from cloud_verifier.engine.tasks import (
    AloneTask,
    CloseTask,
    HiddenTask,
    OpenTask,
    SessionKey,
    StepTask,
    StopTask,
    Task,
    TaskQueue,
    VerifyTask,
)
from cloud_verifier.logs import EventLog
from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.errors import ModelError, OptionsError, ProtocolError
from specdec.link.convert import q_from_wire, row_to_wire, sampling_from_wire
from specdec.link.wire import (
    ERROR_INTERNAL,
    ERROR_REFUSED,
    Down,
    DraftUp,
    ErrorDown,
    HintDown,
    Open,
    Opened,
    RowDown,
    SampledUp,
    Tokens,
    VerdictDown,
)
from specdec.models import LoadedModel, Prompt
from specdec.models.split import BackSession
from specdec.sampling.recoveries import Recovery
from specdec.verifying import SampledVerdict, SampledVerifier, Verifier
from specdec.verifying.hints.hints import HintMaker

Outbox = Callable[[SessionKey, Down, bool], None]
"""Takes (session, reply, whether the session is over)."""


class Engine:
    """Runs forwards: `run()` in a thread of its own until stop(), or `work_off()` between other things."""

    def __init__(
        self,
        model: LoadedModel,
        outbox: Outbox,
        log: EventLog,
        draft_model: LoadedModel | None = None,
        clock: Callable[[], float] = time.perf_counter,
        hint_maker: HintMaker | None = None,
    ) -> None:
        """hint_maker: makes hints for the sessions that want them; None: there are no exits."""
        self._model = model
        self._draft_model = draft_model
        self._outbox = outbox
        self._log = log
        self._clock = clock
        self._tasks = TaskQueue()
        self._verifiers: dict[SessionKey, Verifier] = {}
        self._fronts: dict[SessionKey, tuple[OpenTask, BackSession]] = {}
        self._hint_maker = hint_maker
        self._hinting: dict[SessionKey, SessionHinting] = {}
        self._openings: dict[SessionKey, Open] = {}
        self._drafters: dict[SessionKey, ChainDrafter] = {}
        self._streams: dict[SessionKey, int] = {}
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
            self._do(task)

    def work_off(self) -> None:
        """Do one task, if one is there."""
        task = self._tasks.poll()
        if task is not None and not isinstance(task, StopTask):
            self._do(task)

    @property
    def idle(self) -> bool:
        """True where no task is waiting."""
        return self._tasks.empty

    def _do(self, task: OpenTask | VerifyTask | HiddenTask | AloneTask | StepTask | CloseTask) -> None:
        if isinstance(task, CloseTask):
            self._forget(task.key)
            return
        try:
            self._work(task)
        except (ModelError, OptionsError, ProtocolError) as error:
            self._log.warning("refused", session=task.key[1], reason=str(error))
            self._end(task.key, ERROR_REFUSED, str(error))
        except Exception as error:  # one session's fault must not end the others' (TRAPS 20)
            self._log.error("session_failed", session=task.key[1], traceback=self._log.trace_of(error))
            self._end(
                task.key, ERROR_INTERNAL, f"the verifier failed on this session ({type(error).__name__})"
            )

    def _end(self, key: SessionKey, code: str, reason: str) -> None:
        self._forget(key)
        self._outbox(key, ErrorDown(key[1], code, reason[:1900]), True)

    def _forget(self, key: SessionKey) -> None:
        self._verifiers.pop(key, None)
        self._fronts.pop(key, None)
        self._openings.pop(key, None)
        self._drafters.pop(key, None)
        self._streams.pop(key, None)
        self._hinting.pop(key, None)

    def _work(self, task: OpenTask | VerifyTask | HiddenTask | AloneTask | StepTask) -> None:
        if isinstance(task, OpenTask):
            front_layers = task.message.front_layers
            self._forget(task.key)
            if front_layers:  # the prompt comes through the edge's layers first
                self._fronts[task.key] = task, BackSession(self._model, front_layers)
            else:
                self._open(task)
        elif isinstance(task, HiddenTask):
            self._go_on_with_hidden(task)
        elif isinstance(task, VerifyTask):
            self._verify(task)
        elif isinstance(task, AloneTask):
            self._go_on_alone(task)
        elif self._verifiers.get(task.key) is task.verifier and self._streams.get(task.key) == task.stream:
            self._step(task)

    def _open(self, task: OpenTask, back: BackSession | None = None) -> None:
        """back: where the edge runs the first layers, the session of the others."""
        message = task.message
        started = self._clock()
        verifier = self._new_verifier(message, back)
        prompt = Prompt(tuple(message.ids), tuple(message.images))
        token = None
        if message.pending:
            verifier.prefill(prompt, message.history)
        else:
            token = verifier.open(prompt, message.history)
        verify_us, queue_us = self._times(task.arrived_s, started)
        self._verifiers[task.key] = verifier
        self._outbox(task.key, Opened(message.session, token, verifier.limit, verify_us, queue_us), False)
        if message.hints and self._hint_maker is not None and type(verifier) is Verifier:
            self._hinting[task.key] = self._new_hinting(self._hint_maker, task.key, message)
        if self._draft_model is not None:
            self._openings[task.key] = message
        if message.stream:
            self._stream(task.key, 1, message.speculate)

    def _go_on_alone(self, task: AloneTask) -> None:
        verifier = self._verifiers.get(task.key)
        if verifier is None:
            return  # closed meanwhile
        if isinstance(verifier, SampledVerifier):
            raise ProtocolError("with rejection sampling every token needs a draft: none is decoded alone")
        self._stream(task.key, abs(self._streams.get(task.key, 0)) + 1, task.message.speculate)

    def _stream(self, key: SessionKey, stream: int, speculate: int) -> None:
        """Begin to decode alone; the number of the stream tells its steps from those of one that a draft ended."""
        verifier = self._verifiers[key]
        if not verifier.finished:
            drafter = self._drafter(key) if speculate else None
            self._streams[key] = stream
            self.submit(StepTask(key, verifier, self._clock(), stream, drafter, speculate))

    def _verify(self, task: VerifyTask) -> None:
        verifier = self._verifiers.get(task.key)
        if verifier is None:
            return  # closed meanwhile
        message = task.message
        # A draft ends the cloud's going on alone.
        self._streams[task.key] = -abs(self._streams.get(task.key, 0))
        started = self._clock()
        if isinstance(message, (DraftUp, SampledUp)) and message.epoch < verifier.epoch:
            return  # it assumed what a verdict has broken since: the edge expects no answer
        if isinstance(message, DraftUp):
            parents = None if message.parents is None else tuple(message.parents)
            hinting = self._hinting.get(task.key)
            observer = None if hinting is None else hinting.observer(verifier, message)
            judgement = verifier.verify(Draft(message.base, tuple(message.ids), parents), observer)
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

    def _go_on_with_hidden(self, task: HiddenTask) -> None:
        """Layer split: the prompt, or the next token, as the edge's layers left it."""
        if task.key not in self._fronts:
            raise ProtocolError("a layer split was not agreed on when the session was opened")
        opening, back = self._fronts[task.key]
        message = task.message
        verifier = self._verifiers.get(task.key)
        if verifier is None:
            prompt = Prompt(tuple(opening.message.ids), tuple(opening.message.images))
            rows = self._model.encode(prompt).ids.shape[0] + len(opening.message.history)
            back.hand_in(message.data, rows)
            self._open(replace(opening, arrived_s=task.arrived_s), back)
            return
        if verifier.finished:
            raise ProtocolError("a token came after the end of the answer")
        started = self._clock()
        back.hand_in(message.data, 1)
        token = verifier.step()
        times = self._times(task.arrived_s, started)
        self._outbox(task.key, VerdictDown(message.session, message.round, 0, token, *times), False)

    def _new_verifier(self, message: Open, back: BackSession | None) -> Verifier:
        options = sampling_from_wire(message.sampling)
        recovery = Recovery(message.recovery)
        if recovery is Recovery.NOISE:
            return Verifier(self._model, options, back)
        if message.stream or back is not None:
            raise ProtocolError("an answer without drafts has none to reject: open it without recovery")
        return SampledVerifier(self._model, options, recovery, message.recovery_size, message.ahead)

    def _drafter(self, key: SessionKey) -> ChainDrafter:
        if self._draft_model is None:
            raise ProtocolError("this verifier has no draft model: start it with --draft-model")
        if key not in self._drafters:
            message = self._openings[key]
            drafter = ChainDrafter(DraftModel(self._draft_model, sampling_from_wire(message.sampling)))
            drafter.prefill(Prompt(tuple(message.ids), tuple(message.images)))
            self._drafters[key] = drafter
        return self._drafters[key]

    def _new_hinting(self, maker: HintMaker, key: SessionKey, message: Open) -> SessionHinting:
        def send(hint: HintDown) -> None:
            self._outbox(key, hint, False)

        options = sampling_from_wire(message.sampling)
        return SessionHinting(maker, message, options, send, self._log, self._clock)

    def _step(self, task: StepTask) -> None:
        started = self._clock()
        verifier = task.verifier
        base = len(verifier.answer)
        drafted = 0
        if task.drafter is None:
            verifier.step()
        else:
            draft = task.drafter.chain(verifier.answer, min(task.gamma, verifier.limit - base - 1)).draft
            drafted = len(draft.ids)
            epoch = verifier.epoch
            verifier.verify(draft)
            verifier.epoch = epoch  # the edge's drafts know nothing of this one
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
    if verdict.row is not None:
        return row_to_wire(session, round_, verdict.accepted, verdict.row, *times)
    return VerdictDown(session, round_, verdict.accepted, verdict.token, *times)

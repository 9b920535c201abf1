# SPDX-License-Identifier: Apache-2.0
"""The work of one session: turns each of its tasks into a plan, and sends the replies.

It knows no other session and runs no forward pass itself: the engine runs the plans, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cloud_verifier.engine.hints import SessionHinting
from cloud_verifier.engine.interface import EngineEnvironment
from cloud_verifier.engine.tasks import OpenTask, QueuedSession
from cloud_verifier.observing.counts import EngineLoad
from cloud_verifier.observing.spans import SessionTrace, trace_of
from specdec.drafting import ChainDrafter, Draft, DraftModel
from specdec.drafting.lookup.drafter import LookupDrafter
from specdec.drafting.lookup.suffixes import SuffixMemory
from specdec.errors import ProtocolError
from specdec.link.convert import prompt_from_wire, q_from_wire, row_to_wire, sampling_from_wire
from specdec.link.pictures import pictures_of
from specdec.link.wire import (
    AloneUp,
    Down,
    DraftUp,
    HiddenUp,
    HintDown,
    More,
    Opened,
    RowDown,
    SampledUp,
    Tokens,
    Up,
    VerdictDown,
)
from specdec.models import LoadedModel
from specdec.models.plans import Plan
from specdec.models.split import BackSession
from specdec.sampling.recoveries import Recovery
from specdec.verdict_log import LoggedAnswer
from specdec.verifying import SampledVerdict, SampledVerifier, Verifier
from specdec.verifying.hints.hints import HintMaker


@dataclass(frozen=True)
class Models:
    """The models of an engine. draft_model: drafts in the cloud; None: there is none. looks_up: the cloud then drafts
    by lookup (specdec.drafting.lookup). hint_maker: None if there are no early exits.
    """

    target: LoadedModel
    draft_model: LoadedModel | None = None
    hint_maker: HintMaker | None = None
    looks_up: bool = False


@dataclass(frozen=True)
class EngineContext:
    """What all sessions share. environment: of the engine. admit: called before a session's cache is made; takes
    (work, tokens), raises OverBudget. price_s: seconds of a forward pass over this many rows; None if unknown.
    """

    models: Models
    environment: EngineEnvironment
    clock: Callable[[], float]
    load: EngineLoad
    admit: Callable[[SessionWork, int], None]
    price_s: Callable[[int], float | None]


@dataclass(frozen=True)
class Times:
    """Time spent on a reply, in microseconds: on work, and on waiting before and between."""

    verify_us: int
    queue_us: int


class SessionWork(QueuedSession):
    """One session, from its opening on.

    waited_s: how long the current work has waited for forward passes; the engine updates it. rank: of its class; 0 is
    served first. scope: sessions with the same scope share prompts. trace: its spans; None: not traced. evicted: its
    cache was given back.
    """

    def __init__(self, context: EngineContext, opening: OpenTask, number: int) -> None:
        super().__init__(opening, context.environment.log, number)
        self.rank = opening.rank
        self.scope = opening.scope
        self.trace: SessionTrace | None = None
        if context.environment.tracing is not None:
            self.trace = trace_of(context.environment.tracing, opening.message, self.use, context.clock)
        self.waited_s = 0.0
        self.evicted = False
        self._context = context
        self._opening: OpenTask | None = opening
        self._message = opening.message
        self._began_s = opening.arrived_s
        self._verifier: Verifier | None = None
        self._back: BackSession | None = None
        self._hinting: SessionHinting | None = None
        self._drafter: ChainDrafter | LookupDrafter | None = None
        self._alone = False
        self._speculate = 0
        self._rounds: list[tuple[int, int]] = []

    @property
    def only_streams(self) -> bool:
        """Whether its only work is decoding without drafts."""
        return self._alone and self._opening is None and not len(self.tasks)

    @property
    def prompt_bytes(self) -> int:
        """Size of the pictures that are kept while it is open."""
        return sum(map(len, pictures_of(self._message)))

    @property
    def has_work(self) -> bool:
        """Whether there is something to do now."""
        return self._opening is not None or bool(len(self.tasks)) or self._alone

    def next_plan(self) -> Plan[None] | None:
        """The next thing to do: the opening, a waiting task, or a step of decoding without drafts; None: nothing."""
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return self._traced("prefill", None, opening.arrived_s, self._begin(opening))
        if len(self.tasks):
            task, taken = self.tasks.get()
            for one in taken:
                self._context.environment.on_out(one)
            self._mark(task.arrived_s)
            return self._traced("verify", task.message, task.arrived_s, self._plan(task.message))
        if self._alone:
            self._mark(self._context.clock())
            return self._traced("decode", None, self._began_s, self._step())
        return None

    def _traced(self, work: str, message: Up | None, since_s: float, plan: Plan[None]) -> Plan[None]:
        return plan if self.trace is None else self.trace.around(work, message, since_s, plan)

    def _mark(self, arrived_s: float) -> None:
        """Start timing new work, which arrived at `arrived_s`."""
        self._began_s = arrived_s
        self.waited_s = max(0.0, self._context.clock() - arrived_s)
        self.batch = 1

    def _times(self) -> Times:
        """Times of the current work, until now."""
        whole = self._context.clock() - self._began_s
        return Times(max(0, int((whole - self.waited_s) * 1e6)), int(self.waited_s * 1e6))

    def _send(self, message: Down) -> None:
        self._context.environment.outbox(self.key, message, False)

    def _begin(self, task: OpenTask) -> Plan[None]:
        self._mark(task.arrived_s)
        try:
            if task.message.front_layers:  # the prompt comes through the edge's layers first
                self._back = BackSession(self._context.models.target, task.message.front_layers)
            else:
                yield from self._open()
        finally:  # its pictures count as waiting until now
            self._context.environment.on_out(task)

    def _plan(self, message: DraftUp | SampledUp | More | HiddenUp | AloneUp) -> Plan[None]:
        if isinstance(message, HiddenUp):
            return self._go_on_with_hidden(message)
        if isinstance(message, AloneUp):
            return self._go_on_alone(message)
        return self._verify(message)

    def _open(self) -> Plan[None]:
        message, context = self._message, self._context
        if message.stream:
            self._check_drafts(message.speculate)
        verifier = self._new_verifier()
        yield from verifier.prefill.plan(prompt_from_wire(message), message.history, admit=self._admit)
        token = None
        if not message.pending:
            token = yield from verifier.step.plan()
        self._verifier = verifier
        times = self._times()
        self.use.worked(times.verify_us, times.queue_us)
        forced = verifier.answer[len(message.history) + 1 :]  # tokens that a grammar forces after it
        self._send(Opened(message.session, token, verifier.limit, times.verify_us, times.queue_us, forced))
        self.use.log.info("prefilled", verify_ms=times.verify_us / 1e3, queue_ms=times.queue_us / 1e3)
        hint_maker = context.models.hint_maker
        if message.hints and hint_maker is not None and type(verifier) is Verifier:
            options = sampling_from_wire(message.sampling)
            self._hinting = SessionHinting(
                hint_maker, message, options, self._send_hint, self.use.log, context.clock
            )
        if message.stream:
            self._stream(verifier, message.speculate)

    def _admit(self, tokens: int) -> None:
        self.tokens = tokens
        self._context.admit(self, tokens)

    def evict(self) -> bool:
        """Give the cache back until the next request; False if that is impossible."""
        if self._verifier is None or not self._verifier.evict():
            return False
        self._drafter = None
        self.evicted = True
        return True

    def _send_hint(self, hint: HintDown) -> None:
        self._context.load.hints_sent += 1
        self._send(hint)

    def _count(self, times: Times, tokens: int, drafted: int, accepted: int) -> None:
        """Count a verdict, or streamed tokens, that are about to be sent."""
        self._context.load.replied(times.verify_us, times.queue_us, tokens)
        self.use.worked(times.verify_us, times.queue_us)
        self.use.replied(tokens, drafted, accepted)
        if self.trace is not None:
            self.trace.replied(tokens, drafted, accepted)
        if self._context.environment.keep is not None and tokens:
            self._rounds.append((drafted, accepted))

    def ended(self) -> None:
        """The session was closed or forgotten: its opening waits no longer, its answer is stored if asked."""
        if self._opening is not None:  # it never began
            self._context.environment.on_out(self._opening)
        keep, verifier, message = self._context.environment.keep, self._verifier, self._message
        if keep is None or verifier is None or len(verifier.answer) <= len(message.history):
            return
        prompt = prompt_from_wire(message)
        model, temperature = self._context.models.target, message.sampling.temperature
        answer, rounds = tuple(verifier.answer), tuple(self._rounds)
        asked = tuple(prompt.ids), tuple(prompt.images)
        keep(
            LoggedAnswer(
                model.vocabulary_fingerprint, answer, rounds, temperature, *asked, model.weights_digest
            )
        )

    def _new_verifier(self) -> Verifier:
        message, model = self._message, self._context.models.target
        options = sampling_from_wire(message.sampling)
        recovery = Recovery(message.recovery)
        if recovery is Recovery.NOISE:
            return Verifier(model, options, self._back)
        if message.stream or self._back is not None:
            raise ProtocolError(
                "an answer without drafts has no draft to reject: open the session without recovery"
            )
        return SampledVerifier(model, options, recovery, message.recovery_size, message.ahead)

    def _opened(self) -> Verifier:
        if self._verifier is None:
            raise ProtocolError("a draft came before the prompt was complete")
        return self._verifier

    def _go_on_alone(self, message: AloneUp) -> Plan[None]:
        verifier = self._opened()
        if isinstance(verifier, SampledVerifier):
            raise ProtocolError(
                "rejection sampling needs a draft for every token: it cannot decode without drafts"
            )
        self._check_drafts(message.speculate)
        self._stream(verifier, message.speculate)
        return
        yield  # a plan that needs nothing

    def _check_drafts(self, speculate: int) -> None:
        """Raise ProtocolError if the cloud is asked for drafts and can make none."""
        models = self._context.models
        if speculate and models.draft_model is None and not models.looks_up:
            raise ProtocolError("this verifier has no draft model: start it with --draft-model")

    def _stream(self, verifier: Verifier, speculate: int) -> None:
        """Decode without edge drafts from here on, until a draft comes or the answer ends."""
        self._speculate = speculate
        self._alone = not verifier.finished

    def _step(self) -> Plan[None]:
        verifier = self._opened()
        base = len(verifier.answer)
        drafted, draft_us = 0, 0
        if self._speculate:
            drafted, draft_us = yield from self._speculative_step(verifier)
        else:
            yield from self._plain_step(verifier)
        self._alone = not verifier.finished
        times, ids = self._times(), verifier.answer[base:]
        self._count(times, len(ids), drafted, min(drafted, len(ids) - 1))
        self._send(
            Tokens(self.key[1], base, ids, times.verify_us, times.queue_us, drafted, self.batch, draft_us)
        )

    def _plain_step(self, verifier: Verifier) -> Plan[None]:
        """One forward pass without a draft model. Where a grammar leaves only few continuations, all of them are
        verified along, which yields several tokens at once.
        """
        draft = yield from verifier.choices.plan(self._context.price_s)
        if not draft.ids:
            yield from verifier.step.plan()
            return
        yield from self._verify_own(verifier, draft)

    def _verify_own(self, verifier: Verifier, draft: Draft) -> Plan[None]:
        """Verify a draft that the edge did not send, so that its epoch stays."""
        epoch = verifier.epoch
        yield from verifier.verify.plan(draft)
        verifier.epoch = epoch

    def _speculative_step(self, verifier: Verifier) -> Plan[tuple[int, int]]:
        """One round with the cloud's own draft model. If drafting fails, the answer continues without it.

        Returns the number of drafted tokens and the microseconds that drafting took; 0 if unknown.
        """
        size = min(self._speculate, verifier.limit - len(verifier.answer) - 1)
        if size < 1:  # only one token is left: no draft, and no prefill of the draft model
            yield from verifier.step.plan()
            return 0, 0
        try:
            draft, draft_us = yield from self._draft(verifier.answer, size)
        except Exception as error:
            self._drafter, self._speculate = None, 0
            reason = f"{type(error).__name__}: {error}"[:500]
            self.use.log.warning("draft_failed", reason=reason)
            yield from verifier.step.plan()
            return 0, 0
        yield from self._verify_own(verifier, draft)
        return len(draft.ids), draft_us

    def _draft(self, answer: list[int], size: int) -> Plan[tuple[Draft, int]]:
        """A draft, and the microseconds it took; 0 for the first one, whose time includes prefilling the prompt and
        the answer so far.
        """
        is_first = self._drafter is None
        if self._drafter is None:
            drafter = self._new_drafter()
            yield from drafter.prefill.plan(prompt_from_wire(self._message))
            self._drafter = drafter
        began_s, waited_s = self._context.clock(), self.waited_s
        proposal = yield from self._drafter.chain.plan(answer, size)
        took_s = self._context.clock() - began_s - (self.waited_s - waited_s)
        return proposal.draft, 0 if is_first else max(0, int(took_s * 1e6))

    def _new_drafter(self) -> ChainDrafter | LookupDrafter:
        """A cloud drafter for this session alone, so that one client's answers do not show in another's timing."""
        draft_model, model = self._context.models.draft_model, self._context.models.target
        if draft_model is not None:
            return ChainDrafter(DraftModel(draft_model, sampling_from_wire(self._message.sampling)))
        return LookupDrafter(SuffixMemory(), model.eos_token_ids, model.never_drafted)

    def _verify(self, message: DraftUp | SampledUp | More) -> Plan[None]:
        verifier = self._opened()
        accepted: int | None = None
        self._alone = False  # a draft from the edge ends decoding without drafts
        if isinstance(message, (DraftUp, SampledUp)) and message.epoch < verifier.epoch:
            return  # it builds on a draft that was rejected since: the edge expects no verdict
        if isinstance(message, DraftUp):
            parents = None if message.parents is None else tuple(message.parents)
            observer = None if self._hinting is None else self._hinting.observer(verifier, message)
            draft = Draft(message.base, tuple(message.ids), parents)
            judgement = yield from verifier.verify.plan(draft, observer)
            verdict = SampledVerdict(judgement.last, judgement.token)
            accepted = len(judgement.path)  # in a tree, verdict.accepted is a node, not a count
        elif not isinstance(verifier, SampledVerifier):
            raise ProtocolError("rejection sampling was not agreed on when the session was opened")
        elif isinstance(message, SampledUp):
            q = q_from_wire(message.q, len(message.ids), self._context.models.target.vocab_size)
            draft = Draft(message.base, tuple(message.ids))
            verdict = yield from verifier.verify_sampled.plan(draft, q, message.fix)
        else:
            verdict = SampledVerdict(verifier.rejected_at, None, verifier.more())
        times = self._times()
        drafted = 0 if isinstance(message, More) else len(message.ids)
        accepted = verdict.accepted if accepted is None else accepted
        forced: list[int] = []
        if verdict.token is not None and not isinstance(message, More):
            forced = verifier.forced_after(message.base + accepted + 1)
        self._count(times, accepted + (verdict.token is not None) + len(forced), drafted, accepted)
        self._send(self._verdict_message(message.round, verdict, times, forced))

    def _verdict_message(
        self, round_: int, verdict: SampledVerdict, times: Times, forced: list[int]
    ) -> VerdictDown | RowDown:
        session, verify_us, queue_us = self.key[1], times.verify_us, times.queue_us
        if verdict.row is not None:
            return row_to_wire(
                session, round_, verdict.accepted, verdict.row, verify_us, queue_us, self.batch
            )
        return VerdictDown(
            session, round_, verdict.accepted, verdict.token, verify_us, queue_us, self.batch, forced
        )

    def _go_on_with_hidden(self, message: HiddenUp) -> Plan[None]:
        """Layer split: continue with the hidden states of the prompt, or of the next token, from the edge's
        layers.
        """
        back = self._back
        if back is None:
            raise ProtocolError("a layer split was not agreed on when the session was opened")
        if self._verifier is None:
            prompt = prompt_from_wire(self._message)
            rows = self._context.models.target.encode(prompt).ids.shape[0] + len(self._message.history)
            back.hand_in(message.data, rows)
            yield from self._open()
            return
        if self._verifier.finished:
            raise ProtocolError("a token came after the end of the answer")
        back.hand_in(message.data, self._verifier.unfed)
        base = len(self._verifier.answer)
        token = yield from self._verifier.step.plan()
        times, forced = self._times(), self._verifier.answer[base + 1 :]
        self._count(times, 1 + len(forced), 0, 0)
        self._send(
            VerdictDown(
                message.session, message.round, 0, token, times.verify_us, times.queue_us, forced=forced
            )
        )

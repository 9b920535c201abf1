# SPDX-License-Identifier: Apache-2.0
"""The engine on vLLM: turns tasks into requests, offers and verdicts. Many sessions share one of vLLM's forward passes.

Once a vLLM request has its first token it is held until a draft for it comes or it decodes without drafts. As in our
own engine, a session is admitted with all it may come to hold before its request starts, and idle sessions give up
their caches.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

# vLLM replaces torch.set_num_threads by a function that does nothing: import it first.
from torch import get_num_threads, set_num_threads

from cloud_verifier.engine.interface import Capabilities, EngineEnvironment, failure_of
from cloud_verifier.engine.memory import TREE_TOKENS, KvBudget
from cloud_verifier.engine.tasks import (
    CloseTask,
    OpenTask,
    PauseTask,
    SessionKey,
    StopTask,
    Task,
    arrivals,
)
from cloud_verifier.engine_vllm.answers import AnswerBounds, VllmAnswer
from cloud_verifier.engine_vllm.core import MOST_DRAFTED, VllmCore
from cloud_verifier.engine_vllm.sessions import VllmSession
from cloud_verifier.engine_vllm.target import VllmTarget
from cloud_verifier.observing.counts import BEAT_S, EngineLoad, SessionUse
from specdec.errors import ModelError, ProtocolError
from specdec.isolation.accounts import Accounts, charged
from specdec.link.convert import prompt_from_wire
from specdec.link.wire import ERROR_INTERNAL, ERROR_REFUSED, ErrorDown, Tokens, VerdictDown
from specdec.models import EncodedPrompt
from specdec.models.local import answer_limit

PREPARED_AT_ONCE = 16
"""Most prompts with pictures or grammars that are prepared at a time; the workers bound how many of these run."""
CAN = Capabilities(trees=False, split=False, sampled=False)


@dataclass(frozen=True)
class _Prepared:
    """A session's prompt, or the error from preparing it."""

    session: VllmSession
    result: EncodedPrompt | Exception


class VllmEngine:
    """An `AnyEngine`. Several can take turns on one core, one at a time."""

    def __init__(
        self,
        core: VllmCore,
        target: VllmTarget,
        environment: EngineEnvironment,
        clock: Callable[[], float] = time.perf_counter,
        overcommit: float = 1.0,
        name: str = "",
    ) -> None:
        """overcommit: admit this many times the cache; above 1, requests may temporarily lose their caches to others.
        name: prefix of its request names.
        """
        # If the target's workers are other processes, this process would not learn of a grammar that fails.
        self.can = replace(CAN, grammars=core.workers == 1)
        self._core = core
        core.when_lost(environment.fail)
        self._target = target
        self._environment = environment
        self._clock = clock
        self._name = name
        self.load = EngineLoad(clock())
        a_token = max(1, core.kv_bytes // (core.blocks * core.block_tokens))
        self._budget = KvBudget(int(core.blocks * core.block_tokens * a_token * overcommit), a_token)
        self._preempted_before = core.preempted
        self._arriving: queue.SimpleQueue[Task | _Prepared] = queue.SimpleQueue()
        self._sessions: dict[SessionKey, VllmSession] = {}
        self._by_request: dict[str, VllmSession] = {}
        self._paused: set[bytes] = set()
        self._starved: list[VllmSession] = []
        self._opened = 0
        self._threads = get_num_threads()
        self._preparing = ThreadPoolExecutor(PREPARED_AT_ONCE, "prepare")
        self.accounts = Accounts()
        self._stopping = False

    def submit(self, task: Task) -> None:
        """Hand over a task, from any thread."""
        self._arriving.put(task)

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread."""
        self._stopping = True
        self._arriving.put(StopTask())
        self._preparing.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Work until stop()."""
        # OpenMP's thread count is set per thread; vLLM's kernels refuse any other count than they were planned with.
        set_num_threads(self._threads)
        while not self._stopping:
            self._environment.beats.mark("engine")
            if not self._busy:
                try:
                    first = self._arriving.get(timeout=BEAT_S)
                except queue.Empty:
                    continue
                self._take_arrivals(first)
            self.work_off()
        self._environment.beats.end("engine")
        self.let_go()

    def let_go(self) -> None:
        """Remove everything of this engine from the core."""
        self._core.drop(list(self._by_request))
        self._by_request.clear()

    def work_off(self) -> None:
        """Take in new tasks, and run one forward pass if any session needs one."""
        try:
            self._take_arrivals()
            if self._busy and not self._stopping:
                self._forward()
        except Exception as error:  # not one session's fault: nobody can tell which answers are sound
            if self._core.is_lost():
                self._stopping = (
                    True  # the server ends and notifies edges, which continue their answers elsewhere
                )
                return
            self._environment.log.error(
                "engine_failed", sessions=len(self._sessions), traceback=self._environment.log.trace_of(error)
            )
            for key in list(self._sessions):
                self._end(
                    key,
                    ERROR_INTERNAL,
                    f"the verifier failed ({type(error).__name__}): open the session again",
                )

    @property
    def _busy(self) -> bool:
        """Whether a session needs a forward pass."""
        return any(self._wants(session) for session in self._by_request.values())

    @property
    def idle(self) -> bool:
        """True if nothing is waiting."""
        return not self._busy and self._arriving.empty()

    def tell_prices(self, row_us: object) -> None:
        """Ignored: this engine does not use row prices."""

    def kv_admitted(self) -> dict[SessionKey, int]:
        """Bytes of KV cache that each session may come to hold; from any thread."""
        return self._budget.admitted.copy()

    def gauges(self) -> dict[str, float]:
        """Current values for the metrics; from any thread."""
        return self._budget.gauges()

    def counters(self) -> dict[str, float]:
        """Counters for the metrics; from any thread. Caches that vLLM took from a request count as evictions."""
        return {"kv_evictions": self._budget.evictions + self._core.preempted - self._preempted_before}

    def _wants(self, session: VllmSession) -> bool:
        """Whether a session that has a request needs a forward pass."""
        if not session.opened or session.draft is not None:
            return True
        return session.alone and session.key[0] not in self._paused

    def _take_arrivals(self, first: Task | _Prepared | None = None) -> None:
        prepared, arrived, dropped = arrivals(self._arriving, _Prepared, first)
        for one in prepared:
            self._begin(one.session, one.result)
        for task in dropped:
            self._environment.on_out(task)
        for task in arrived:
            self._take(task)

    def _take(self, task: Task) -> None:
        if isinstance(task, OpenTask):
            self._forget(task.key)
            self._open(task)
        elif isinstance(task, CloseTask):
            self._environment.on_out(task)
            self._forget(task.key)
        elif isinstance(task, PauseTask):
            self._environment.on_out(task)
            (self._paused.add if task.paused else self._paused.discard)(task.key[0])
            for one in [one for one in self._sessions.values() if one.key[0] == task.key[0]]:
                self._go_on(one)
        elif not isinstance(task, StopTask):
            session = self._sessions.get(task.key)
            if session is None:  # closed in the meantime
                self._environment.on_out(task)
                return
            session.tasks.put(task)
            self._go_on(session)

    def _open(self, task: OpenTask) -> None:
        self._opened += 1
        use = task.use or SessionUse("", self._environment.log.bind(session=task.key[1]))
        try:
            session = VllmSession(task, use, self._opened, self.can.grammars)
        except ProtocolError as error:
            self._environment.on_out(task)
            use.log.warning(ERROR_REFUSED, reason=str(error))
            use.ended_with(ERROR_REFUSED)
            self._environment.outbox(task.key, ErrorDown(task.key[1], ERROR_REFUSED, str(error)[:1900]), True)
            return
        self._sessions[task.key] = session
        if task.message.images or session.options.grammar:
            self._preparing.submit(self._prepare, session)
        else:
            self._begin(session, self._encoded(session))

    def _prepare(self, session: VllmSession) -> None:
        """Runs in its own thread: pictures and grammars take a while in workers."""
        token = charged.set(self.accounts.account_of(session.opening.owner or session.key[0]))
        try:
            result = self._encoded(session)
            if not isinstance(result, Exception) and session.options.grammar:
                session.grammar = self._target.grammar(session.options.grammar)
        except Exception as error:  # reported to the session
            result = error
        finally:
            charged.reset(token)
        self._arriving.put(_Prepared(session, result))
        self._environment.wake()

    def _encoded(self, session: VllmSession) -> EncodedPrompt | Exception:
        try:
            return self._target.encode(prompt_from_wire(session.message))
        except Exception as error:  # reported to the session
            return error

    def _begin(self, session: VllmSession, result: EncodedPrompt | Exception) -> None:
        """Start a session whose prompt is prepared, or end it if that failed."""
        self._environment.on_out(session.opening)
        if self._sessions.get(session.key) is not session:
            return  # closed in the meantime
        try:
            if isinstance(result, Exception):
                raise result
            length = int(result.ids.shape[0])
            limit = answer_limit(session.options, self._target.context_limit, length)
            target = self._target
            bounds = AnswerBounds(
                limit, target.vocab_size, target.eos_token_ids, target.never_drafted, MOST_DRAFTED
            )
            session.answer = VllmAnswer(bounds, session.message.history)
            if session.grammar is not None:
                session.grammar.check_room(session.options.max_new_tokens)
            session.encoded = result
            session.tokens = length + limit
            if session.message.stream:
                session.go_alone(session.message.speculate)
            if not self._make_room(session):
                raise self._budget.exhausted()
            self._request(session)
        except Exception as error:  # one session's fault must not end the others'
            self._fail(session, error)

    def _request(self, session: VllmSession) -> None:
        """Start a vLLM request for a session's prompt and the answer so far."""
        assert session.encoded is not None
        answer = session.verified
        session.request = self._name + session.next_request
        self._by_request[session.request] = session
        left = answer.bounds.limit - len(answer.ids)
        scope = session.opening.scope
        salt = scope.hex() or None
        prompt = prompt_from_wire(session.message)
        self._core.add(session.request, prompt, session.encoded, answer.ids, left, session.rules(), salt)

    def _make_room(self, session: VllmSession) -> bool:
        """Take KV budget for all that a session may come to hold, evicting idle sessions if necessary.

        Returns False without room. Raises OverBudget if the session needs more than the whole budget.
        """
        block = self._core.block_tokens
        # vLLM allocates whole blocks, also for draft tokens beyond the end of the answer.
        needed = self._budget.needed(block * math.ceil((session.tokens + MOST_DRAFTED) / block) - TREE_TOKENS)
        if not self._budget.fits(needed):
            for other in list(self._sessions.values()):  # the session that has been idle longest comes first
                if other is session or not other.rests or other.key not in self._budget.admitted:
                    continue
                self._evict(other)
                if self._budget.fits(needed):
                    break
            else:
                return False
        self._budget.take(session.key, needed)
        return True

    def _evict(self, session: VllmSession) -> None:
        """Give back the cache of an idle session until its next request."""
        self._drop_request(session)
        self._budget.evictions += 1
        session.use.log.info("evicted", tokens=session.tokens)

    def _drop_request(self, session: VllmSession) -> None:
        """Abort a session's vLLM request and give back its cache."""
        if session.request:
            self._by_request.pop(session.request, None)
            self._core.drop([session.request])
            session.request = ""
        self._budget.give_back(session.key)

    def _go_on(self, session: VllmSession) -> None:
        """Send the replies that are ready, take up waiting tasks, and tell vLLM what the session needs next."""
        try:
            self._answer(session)
            if session.opened:
                self._want(session)
        except Exception as error:  # one session's fault must not end the others'
            self._fail(session, error)
            return
        if session.rests and self._sessions.get(session.key) is session:
            self._sessions[session.key] = self._sessions.pop(session.key)  # now the most recently idle one
            self._feed_the_starved()

    def _want(self, session: VllmSession) -> None:
        """Tell vLLM what a session needs; an evicted session is admitted and prefilled again first."""
        wants = self._wants(session) and not session.verified.finished
        if wants and not session.request:
            if not self._make_room(session):
                if session not in self._starved:
                    self._starved.append(session)  # until another session ends or has nothing to do
                return
            self._request(session)
            self.load.restored += 1
            session.use.log.info("restored")
        elif session.request:
            draft = session.draft
            rest = [] if draft is None else session.verified.rest(draft)
            self._core.offer(session.request, rest if wants else None)

    def _answer(self, session: VllmSession) -> None:
        while session.answer is not None:
            if session.opened:
                session.next_draft(self._environment.on_out)
            now = self._clock()
            reply = session.reply(now)
            if reply is None:
                return
            if isinstance(reply, VerdictDown | Tokens):
                tokens = reply.last + 1 if isinstance(reply, VerdictDown) else len(reply.ids)
                self.load.replied(reply.verify_us, reply.queue_us, tokens)
            self._environment.outbox(session.key, reply, False)
            session.begin(now)

    def _feed_the_starved(self) -> None:
        """Retry the sessions that wait for KV room: a session has ended or become idle."""
        starved, self._starved = self._starved, []
        for session in starved:
            if self._sessions.get(session.key) is session:
                self._go_on(session)

    def _forward(self) -> None:
        """Run one step of vLLM, then continue each session that gained tokens."""
        began = self._clock()
        gained = self._core.step()
        took = self._clock() - began
        if self._core.sessions:
            self.load.ran(self._core.sessions, self._core.rows, took)
        elif not gained:
            self._relieve()
        for request, tokens in gained:
            session = self._by_request.get(request)
            if session is None:
                continue
            session.worked_s += took
            session.batch = max(session.batch, self._core.sessions)
            try:
                session.grow(tokens)
            except ModelError as error:
                self._fail(session, error)
                continue
            if session.verified.finished:  # vLLM has dropped it already
                del self._by_request[request]
                session.request = ""
                self._core.offer(request, None)
                self._budget.give_back(session.key)
            self._go_on(session)

    def _relieve(self) -> None:
        """Evict an idle session because no waiting request has room. This happens only with overcommit: vLLM preempts
        no held request, so it must be done here.
        """
        for other in self._sessions.values():  # the session that has been idle longest comes first
            if other.rests and other.request:
                self._evict(other)
                return

    def _fail(self, session: VllmSession, error: Exception) -> None:
        self._end(session.key, *failure_of(error, session.use))

    def _end(self, key: SessionKey, code: str, reason: str) -> None:
        if key in self._sessions:
            self._sessions[key].use.ended_with(code)
        self._forget(key)
        self._environment.outbox(key, ErrorDown(key[1], code, reason[:1900]), True)

    def _forget(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        for task in session.tasks.drop():
            self._environment.on_out(task)
        self._drop_request(session)
        self._feed_the_starved()

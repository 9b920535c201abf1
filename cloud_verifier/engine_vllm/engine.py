# SPDX-License-Identifier: Apache-2.0
"""The engine on vLLM: tasks become requests, offers and verdicts. Its forwards are vLLM's, many sessions in each.

A request of vLLM that has its first token is held until a draft for it comes, or it goes alone. What a session may come
to hold is admitted before its request begins, as our own engine does it; sessions that rest give their caches back.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

# vLLM replaces torch.set_num_threads by a function that does nothing: this one is bound before.
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
"""Prompts whose pictures or grammars are at work; how many of these are at a time is for the workers."""
CAN = Capabilities(trees=False, split=False, sampled=False)


@dataclass(frozen=True)
class _Prepared:
    """What came of a session's prompt."""

    session: VllmSession
    result: EncodedPrompt | Exception


class VllmEngine:
    """An `AnyEngine`. Several may take turns on one core, one at a time."""

    def __init__(
        self,
        core: VllmCore,
        target: VllmTarget,
        around: EngineEnvironment,
        clock: Callable[[], float] = time.perf_counter,
        overcommit: float = 1.0,
        name: str = "",
    ) -> None:
        """overcommit: how many times the cache is promised; beyond 1 requests may lose theirs to others for a while.
        name: begins the names of its requests.
        """
        # Where the target's workers are other processes, a grammar that cannot be followed would not be heard of here.
        self.can = replace(CAN, grammars=core.workers == 1)
        self._core = core
        core.when_lost(around.fail)
        self._target = target
        self._around = around
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
        """End after the forward that is running now, from any thread."""
        self._stopping = True
        self._arriving.put(StopTask())
        self._preparing.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Work until stop()."""
        # OpenMP counts by thread: vLLM's kernels refuse to run on another number than they were planned with.
        set_num_threads(self._threads)
        while not self._stopping:
            self._around.beats.mark("engine")
            if not self._busy:
                try:
                    first = self._arriving.get(timeout=BEAT_S)
                except queue.Empty:
                    continue
                self._take_arrivals(first)
            self.work_off()
        self._around.beats.end("engine")
        self.let_go()

    def let_go(self) -> None:
        """Nothing of this engine's stays in the core."""
        self._core.drop(list(self._by_request))
        self._by_request.clear()

    def work_off(self) -> None:
        """Take in what has come, and run one forward, if one is wanted."""
        try:
            self._take_arrivals()
            if self._busy and not self._stopping:
                self._forward()
        except Exception as error:  # no session's, so no caller knows whose answers are sound
            if self._core.is_lost():
                self._stopping = True  # the server ends, and notifies edges: their answers go on elsewhere
                return
            self._around.log.error(
                "engine_failed", sessions=len(self._sessions), traceback=self._around.log.trace_of(error)
            )
            for key in list(self._sessions):
                self._end(
                    key,
                    ERROR_INTERNAL,
                    f"the verifier failed ({type(error).__name__}): open the session again",
                )

    @property
    def _busy(self) -> bool:
        """Whether a forward is wanted."""
        return any(self._wants(session) for session in self._by_request.values())

    @property
    def idle(self) -> bool:
        """True where nothing is waiting."""
        return not self._busy and self._arriving.empty()

    def tell_prices(self, row_us: object) -> None:
        """Nothing here asks what rows cost."""

    def kv_admitted(self) -> dict[SessionKey, int]:
        """Bytes of cache that each session may come to hold; from any thread."""
        return self._budget.admitted.copy()

    def gauges(self) -> dict[str, float]:
        """What is so now; from any thread."""
        return self._budget.gauges()

    def counters(self) -> dict[str, float]:
        """What only ever grows; from any thread. Caches that vLLM took from a request count as given back."""
        return {"kv_evictions": self._budget.evictions + self._core.preempted - self._preempted_before}

    def _wants(self, session: VllmSession) -> bool:
        """Whether a session wants a forward, its request being there."""
        if not session.opened or session.draft is not None:
            return True
        return session.alone and session.key[0] not in self._paused

    def _take_arrivals(self, first: Task | _Prepared | None = None) -> None:
        prepared, arrived, dropped = arrivals(self._arriving, _Prepared, first)
        for one in prepared:
            self._begin(one.session, one.result)
        for task in dropped:
            self._around.on_out(task)
        for task in arrived:
            self._take(task)

    def _take(self, task: Task) -> None:
        if isinstance(task, OpenTask):
            self._forget(task.key)
            self._open(task)
        elif isinstance(task, CloseTask):
            self._around.on_out(task)
            self._forget(task.key)
        elif isinstance(task, PauseTask):
            self._around.on_out(task)
            (self._paused.add if task.paused else self._paused.discard)(task.key[0])
            for one in [one for one in self._sessions.values() if one.key[0] == task.key[0]]:
                self._go_on(one)
        elif not isinstance(task, StopTask):
            session = self._sessions.get(task.key)
            if session is None:  # closed meanwhile
                self._around.on_out(task)
                return
            session.tasks.put(task)
            self._go_on(session)

    def _open(self, task: OpenTask) -> None:
        self._opened += 1
        use = task.use or SessionUse("", self._around.log.bind(session=task.key[1]))
        try:
            session = VllmSession(task, use, self._opened, self.can.grammars)
        except ProtocolError as error:
            self._around.on_out(task)
            use.log.warning(ERROR_REFUSED, reason=str(error))
            use.ended_with(ERROR_REFUSED)
            self._around.outbox(task.key, ErrorDown(task.key[1], ERROR_REFUSED, str(error)[:1900]), True)
            return
        self._sessions[task.key] = session
        if task.message.images or session.options.grammar:
            self._preparing.submit(self._prepare, session)
        else:
            self._begin(session, self._encoded(session))

    def _prepare(self, session: VllmSession) -> None:
        """In a thread of its own: pictures and grammars take a while, in workers."""
        token = charged.set(self.accounts.account_of(session.opening.owner or session.key[0]))
        try:
            result = self._encoded(session)
            if not isinstance(result, Exception) and session.options.grammar:
                session.grammar = self._target.grammar(session.options.grammar)
        except Exception as error:  # the session is notified
            result = error
        finally:
            charged.reset(token)
        self._arriving.put(_Prepared(session, result))
        self._around.wake()

    def _encoded(self, session: VllmSession) -> EncodedPrompt | Exception:
        try:
            return self._target.encode(prompt_from_wire(session.message))
        except Exception as error:  # the session is notified
            return error

    def _begin(self, session: VllmSession, result: EncodedPrompt | Exception) -> None:
        """The prompt is prepared, or cannot be."""
        self._around.on_out(session.opening)
        if self._sessions.get(session.key) is not session:
            return  # closed meanwhile
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
        """Let vLLM begin with a session's prompt, and with the answer so far behind it."""
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
        """Take of the budget what a session may come to hold, from sessions that rest where that must be.

        Raises OverBudget for more than there ever is.
        """
        block = self._core.block_tokens
        # Whole blocks are given out, also of what is drafted beyond the end.
        needed = self._budget.needed(block * math.ceil((session.tokens + MOST_DRAFTED) / block) - TREE_TOKENS)
        if not self._budget.fits(needed):
            for other in list(self._sessions.values()):  # the one that has rested longest comes first
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
        """What a session that rests holds is given back until something is asked of it."""
        self._drop_request(session)
        self._budget.evictions += 1
        session.use.log.info("evicted", tokens=session.tokens)

    def _drop_request(self, session: VllmSession) -> None:
        """vLLM forgets a session, and what it holds is given back."""
        if session.request:
            self._by_request.pop(session.request, None)
            self._core.drop([session.request])
            session.request = ""
        self._budget.give_back(session.key)

    def _go_on(self, session: VllmSession) -> None:
        """Answer what can be answered, take up what waits, and Report to vLLM what the session wants of it next."""
        try:
            self._answer(session)
            if session.opened:
                self._want(session)
        except Exception as error:  # one session's fault must not end the others'
            self._fail(session, error)
            return
        if session.rests and self._sessions.get(session.key) is session:
            self._sessions[session.key] = self._sessions.pop(session.key)  # the last one to rest
            self._feed_the_starved()

    def _want(self, session: VllmSession) -> None:
        """Report to vLLM what a session wants of it, after making its cache anew where it was given back."""
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
                session.next_draft(self._around.on_out)
            now = self._clock()
            reply = session.reply(now)
            if reply is None:
                return
            if isinstance(reply, VerdictDown | Tokens):
                tokens = reply.last + 1 if isinstance(reply, VerdictDown) else len(reply.ids)
                self.load.replied(reply.verify_us, reply.queue_us, tokens)
            self._around.outbox(session.key, reply, False)
            session.begin(now)

    def _feed_the_starved(self) -> None:
        """A session has ended or rests: those that wait for room may find some now."""
        starved, self._starved = self._starved, []
        for session in starved:
            if self._sessions.get(session.key) is session:
                self._go_on(session)

    def _forward(self) -> None:
        """One step of vLLM; then each session goes on with what it has gained."""
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
            if session.verified.finished:  # vLLM has forgotten it by itself
                del self._by_request[request]
                session.request = ""
                self._core.offer(request, None)
                self._budget.give_back(session.key)
            self._go_on(session)

    def _relieve(self) -> None:
        """Nothing that wants a forward has room for it, which is so only where more is promised than there is: vLLM
        takes no cache from a request that is held, so that is done here.
        """
        for other in self._sessions.values():  # the one that has rested longest comes first
            if other.rests and other.request:
                self._evict(other)
                return

    def _fail(self, session: VllmSession, error: Exception) -> None:
        self._end(session.key, *failure_of(error, session.use))

    def _end(self, key: SessionKey, code: str, reason: str) -> None:
        if key in self._sessions:
            self._sessions[key].use.ended_with(code)
        self._forget(key)
        self._around.outbox(key, ErrorDown(key[1], code, reason[:1900]), True)

    def _forget(self, key: SessionKey) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        for task in session.tasks.drop():
            self._around.on_out(task)
        self._drop_request(session)
        self._feed_the_starved()

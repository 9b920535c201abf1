# SPDX-License-Identifier: Apache-2.0
"""The engine on vLLM: turns tasks into requests, offers and verdicts. Many sessions share one of vLLM's forward passes.

Once a vLLM request has its first token it is held until a draft for it comes or it decodes without drafts. As in our
own engine, a session is admitted with all it may come to hold before its request starts, and idle sessions give up
their caches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

# vLLM replaces torch.set_num_threads by a function that does nothing: import it first.
from torch import get_num_threads, set_num_threads

from cloud_verifier.engine.interface import Capabilities, EngineEnvironment, SessionEngine
from cloud_verifier.engine.memory import TREE_TOKENS, KvBudget
from cloud_verifier.engine.tasks import OpenTask
from cloud_verifier.engine_vllm.answers import AnswerBounds, VllmAnswer
from cloud_verifier.engine_vllm.core import MOST_DRAFTED, VllmCore
from cloud_verifier.engine_vllm.sessions import VllmSession, options_of
from cloud_verifier.engine_vllm.target import VllmTarget
from specdec.errors import ModelError, ProtocolError
from specdec.isolation.accounts import charged
from specdec.link.convert import prompt_from_wire
from specdec.link.wire import Tokens, VerdictDown
from specdec.models import EncodedPrompt
from specdec.models.local import answer_limit

PREPARED_AT_ONCE = 16
"""Most prompts with pictures or grammars that are prepared at a time; the workers bound how many of these run."""
CAN = Capabilities(trees=False, split=False, sampled=False)


class VllmEngine(SessionEngine[VllmSession]):
    """Has vLLM run the forward passes. Several can take turns on one core, one at a time."""

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
        self._name = name
        a_token = max(1, core.kv_bytes // (core.blocks * core.block_tokens))
        budget = KvBudget(int(core.blocks * core.block_tokens * a_token * overcommit), a_token)
        super().__init__(environment, budget, clock)
        self._preempted_before = core.preempted
        self._by_request: dict[str, VllmSession] = {}
        self._threads = get_num_threads()
        self._preparing = ThreadPoolExecutor(PREPARED_AT_ONCE, "prepare")

    def stop(self) -> None:
        """Stop after the current forward pass; from any thread."""
        super().stop()
        self._preparing.shutdown(wait=False, cancel_futures=True)

    def run(self) -> None:
        """Work until stop()."""
        # OpenMP's thread count is set per thread; vLLM's kernels refuse any other count than they were planned with.
        set_num_threads(self._threads)
        super().run()
        self.let_go()

    def let_go(self) -> None:
        """Remove everything of this engine from the core."""
        self._core.drop(list(self._by_request))
        self._by_request.clear()

    def _advance(self) -> None:
        if self._busy and not self._stopping:
            self._forward()

    def _is_lost(self) -> bool:
        return self._core.is_lost()  # edges continue their answers elsewhere

    @property
    def _busy(self) -> bool:
        return any(self._wants(session) for session in self._by_request.values())

    def counters(self) -> dict[str, float]:
        """Counters for the metrics; from any thread. Caches that vLLM took from a request count as evictions."""
        return {"kv_evictions": self.budget.evictions + self._core.preempted - self._preempted_before}

    def _wants(self, session: VllmSession) -> bool:
        """Whether a session that has a request needs a forward pass."""
        if not session.opened or session.draft is not None:
            return True
        return session.alone and session.key[0] not in self._paused

    def _open(self, task: OpenTask) -> None:
        session = VllmSession(task, self._environment.log, self._opened)
        self._sessions[task.key] = session
        try:
            session.options = options_of(task.message, self.can.grammars)
        except ProtocolError as error:
            self._begin(session, error)
            return
        if task.message.images or session.options.grammar:
            self._preparing.submit(self._prepare, session)
        else:
            self._begin(session, self._encoded(session))

    def _prepare(self, session: VllmSession) -> None:
        """Runs in its own thread: pictures and grammars take a while in workers."""
        token = charged.set(self.accounts.account_of(session.owner))
        try:
            result = self._encoded(session)
            if not isinstance(result, Exception) and session.options.grammar:
                session.grammar = self._target.grammar(session.options.grammar)
        except Exception as error:  # reported to the session
            result = error
        finally:
            charged.reset(token)
        self._arriving.put(lambda: self._begin(session, result))
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
            if not self._make_room(session, self._needed(session)):
                raise self.budget.exhausted()
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

    def _needed(self, session: VllmSession) -> int:
        """Bytes for all that a session may come to hold. Raises OverWholeBudget if there never is room."""
        block = self._core.block_tokens
        # vLLM allocates whole blocks, also for draft tokens beyond the end of the answer.
        return self.budget.needed(block * math.ceil((session.tokens + MOST_DRAFTED) / block) - TREE_TOKENS)

    def _drop_cache(self, session: VllmSession) -> bool:
        if not session.rests:
            return False
        self._release(session)
        return True

    def _release(self, session: VllmSession) -> None:
        if session.request:
            self._by_request.pop(session.request, None)
            self._core.drop([session.request])
            session.request = ""

    def _take_up(self, session: VllmSession) -> None:
        """Send the replies that are ready, take up waiting tasks, and tell vLLM what the session needs next."""
        try:
            self._answer(session)
            if session.opened:
                self._want(session)
        except Exception as error:  # one session's fault must not end the others'
            self._fail(session, error)
            return
        if session.rests and self._sessions.get(session.key) is session:
            self._rested(session)
            self._feed_the_starved()

    def _want(self, session: VllmSession) -> None:
        """Tell vLLM what a session needs; an evicted session is admitted and prefilled again first."""
        wants = self._wants(session) and not session.verified.finished
        if wants and not session.request:
            if not self._make_room(session, self._needed(session)):
                self._starve(session)
                return
            self._request(session)
            self._restored(session)
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
                self.budget.give_back(session.key)
            self._take_up(session)

    def _relieve(self) -> None:
        """Evict an idle session because no waiting request has room. This happens only with overcommit: vLLM preempts
        no held request, so it must be done here.
        """
        for other in self._sessions.values():  # the session that has been idle longest comes first
            if other.request and self._evict(other):
                return

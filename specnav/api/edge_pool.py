# SPDX-License-Identifier: Apache-2.0
"""Makes answers: each in a thread with its own edge, all over one loaded draft model.

An edge is a decoder with its link. It serves one answer at a time and is kept for later ones. Draft forward passes of
several edges are joined (specdec.drafting.joint).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cloud_verifier.logs import EventLog
from specdec.draft import common_length
from specdec.drafting.memory import KEPT_BYTES
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.protocol import check_vocabulary
from specdec.errors import LinkLost, ModelError, OptionsError, SpecdecError
from specdec.isolation.accounts import Accounts, charged
from specdec.isolation.workers import Ticket
from specdec.link.channel import Link, connect
from specdec.link.wire import Welcome
from specdec.models import LoadedModel
from specnav.api.answer import AnswerOutcome, ApiAnswer, FinishReason
from specnav.api.asking.asked import ApiRequest
from specnav.api.config import ApiConfig
from specnav.api.errors import ApiError, api_error, wrong
from specnav.api.text import AnswerText

CONNECT_TIMEOUT_S = 2.0
LOOK_EVERY_S = 1.0
"""How often a refusal may have the verifier asked again."""
_FINISHES: dict[str, FinishReason] = {"eos": "stop", "stop": "stop", "length": "length"}


@dataclass(eq=False)
class PooledEdge:
    """A decoder and its link. owner: whose prompts it remembers; prompt: token ids of the last one."""

    link: Link
    decoder: EdgeDecoder
    owner: str = ""
    prompt: tuple[int, ...] = field(default=(), repr=False)


class EdgePool:
    """A pool of edges for up to config.answers answers at a time; the caller enforces that bound."""

    def __init__(self, config: ApiConfig, draft: LoadedModel, log: EventLog) -> None:
        self._config = config
        self._draft = draft
        self._log = log
        self._lock = threading.Lock()
        self._idle: list[PooledEdge] = []
        self._threads = ThreadPoolExecutor(config.answers, thread_name_prefix="answer")
        self._known: Welcome | None = None
        self._looked_s = -LOOK_EVERY_S
        self._running: set[ApiAnswer] = set()
        self._accounts = Accounts()

    @property
    def name(self) -> str:
        """The model's name in this API; "" until the verifier has reported it."""
        if self._config.name or self._known is None:
            return self._config.name
        told = self._known.model
        return Path(told).name if told.startswith(("/", ".")) else told

    async def is_called(self, model: str) -> bool:
        """Whether `model` names our model, with or without its owner prefix; True while the name is unknown."""
        if not self._is_named(model):
            await asyncio.get_running_loop().run_in_executor(None, self._look_again)
        return self._is_named(model)

    def _is_named(self, model: str) -> bool:
        name = self.name
        return not name or model in (name, name.rpartition("/")[2])

    def _look_again(self) -> None:
        """Ask the verifier again before refusing by its earlier reply: another verifier may listen there now."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            with contextlib.suppress(SpecdecError):
                self.knock()

    def knock(self) -> Welcome:
        """Connect to the verifier and check its model. Raises LinkLost and other errors of EdgeDecoder, and ModelError
        for a target and draft that do not match.
        """
        with self._lock:
            edge = self._idle.pop() if self._idle else None
        edge = edge or self._new_edge()
        try:
            with contextlib.suppress(LinkLost):  # a closed connection is noticed only by reading from it
                while edge.link.told is not None and edge.link.receive(0.001) is not None:
                    pass
            welcome = edge.link.ensure_connected()
        finally:
            self._give_back(edge)
        check_vocabulary(welcome, self._draft)
        self._known = welcome
        return welcome

    async def told_name(self) -> str:
        """The model's name; asks the verifier if it is unknown. Raises ApiError."""
        if not self.name:
            try:
                await asyncio.get_running_loop().run_in_executor(None, self.knock)
            except SpecdecError as error:
                raise api_error(error) from error
        return self.name

    def start(self, asked: ApiRequest, owner: str, done: Callable[[], None]) -> ApiAnswer:
        """Start an answer; called in the event loop, which calls `done` when the answer's thread has ended."""
        loop = asyncio.get_running_loop()
        answer = ApiAnswer(loop)
        self._running.add(answer)

        def ended(_: Any) -> None:
            self._running.discard(answer)
            done()

        loop.run_in_executor(self._threads, self._make, asked, owner, answer).add_done_callback(ended)
        return answer

    async def compiled(self, asked: ApiRequest, owner: str) -> None:
        """Compile a request's grammar before it takes a place, because that may take a while. Raises ApiError."""
        if not asked.options.grammar:
            return
        try:
            with self._charged(owner):
                soon: Any = self._draft.grammar_soon(asked.options.grammar)
            if not isinstance(soon, Future):
                return
            try:
                await asyncio.shield(asyncio.wrap_future(soon))
            except asyncio.CancelledError:
                if isinstance(soon, Ticket):
                    soon.abandon()
                raise
        except OptionsError as error:
            raise wrong("response_format", " ".join(str(error).split())) from error
        except SpecdecError as error:
            raise api_error(error) from error

    def stuck(self, seconds: float) -> str:
        """A message if a draft forward pass has run for longer than `seconds`; "" otherwise."""
        joint = self._draft.runner.joint
        began_s = None if joint is None else joint.began_s
        late_s = 0.0 if began_s is None else time.monotonic() - began_s
        return f"a draft forward pass has been running for {late_s:.0f} s" if late_s > seconds else ""

    @contextlib.contextmanager
    def _charged(self, owner: str) -> Iterator[None]:
        """Charge the work of worker processes to the holder of a key. Without keys clients cannot be told apart, and
        nothing is charged.
        """
        token = charged.set(self._accounts.account_of(owner.encode()) if owner else None)
        try:
            yield
        finally:
            charged.reset(token)

    def cancel_all(self) -> None:
        """End every answer soon; from the event loop."""
        for answer in self._running:
            answer.cancel.set()

    def close(self) -> None:
        """End every answer and close the links."""
        self.cancel_all()
        self._threads.shutdown()
        with self._lock:
            for edge in self._idle:
                edge.link.close()
            self._idle.clear()

    def _make(self, asked: ApiRequest, owner: str, answer: ApiAnswer) -> None:
        """Make one answer; runs in a thread."""
        try:
            with self._charged(owner):
                outcome = self._outcome(asked, owner, answer)
            answer.end(outcome)
        except ApiError as error:
            answer.end(error)
        except SpecdecError as error:
            answer.end(api_error(error))
        except Exception as error:
            self._log.error("answer_failed", traceback=self._log.trace_of(error))
            answer.end(ApiError(500, f"the server failed on this request ({type(error).__name__})"))

    def _outcome(self, asked: ApiRequest, owner: str, answer: ApiAnswer) -> AnswerOutcome:
        draft, options = self._draft, asked.options
        account, began_s = charged.get(), time.thread_time()
        if account is not None:
            account.check()
        if self._is_surely_too_long(asked):
            self._look_again()
            if self._is_surely_too_long(asked):
                raise _too_long(asked, f"more than {self._limit}", self._limit)
        try:
            prompt = asked.encoded(draft.tokenizer)
            length = draft.prompt_length(prompt)
        except ModelError as error:
            raise wrong(asked.prompt_field, " ".join(str(error).split())) from None
        self._check(prompt.ids, length, asked)
        if account is not None:
            account.spend(time.thread_time() - began_s)
        grammar = draft.grammar(options.grammar)
        try:
            if grammar is not None:
                grammar.check_room(options.max_new_tokens)
        except OptionsError as error:
            field = asked.length_field
            raise wrong(field, str(error).replace("max_new_tokens", field)) from None
        text = AnswerText(draft.tokenizer, options.stop, options.min_new_tokens)
        edge = self._take(owner, prompt.ids)
        try:
            for ids in edge.decoder.generate(prompt, options, answer.cancel):
                answer.say(text.push(ids), ids)
            stats = edge.decoder.stats
        finally:
            self._known = edge.link.told or self._known
            self._give_back(edge)
        answer.say(text.finish(), [])
        return AnswerOutcome(_FINISHES.get(stats.finish), length, self._config.method, stats)

    def _check(self, ids: tuple[int, ...], length: int, asked: ApiRequest) -> None:
        """Check what can be checked without a session. Raises ApiError."""
        vocabulary = self._draft.vocab_size
        if max(ids) >= vocabulary or min(ids) < 0:
            raise wrong("prompt", f"the prompt has ids outside the vocabulary of {vocabulary}")
        if any(token >= vocabulary for token, _ in asked.options.logit_bias):
            raise wrong("logit_bias", f"logit_bias has ids outside the vocabulary of {vocabulary}")
        if 0 < self._limit <= length:
            self._look_again()
            if 0 < self._limit <= length:
                raise _too_long(asked, str(length), self._limit)

    def _is_surely_too_long(self, asked: ApiRequest) -> bool:
        return self._limit > 0 and asked.is_surely_longer(self._draft.tokenizer, self._limit)

    @property
    def _limit(self) -> int:
        """Most tokens of prompt and answer together; 0 until the verifier has reported it."""
        return 0 if self._known is None else self._known.context_limit

    def _take(self, owner: str, ids: tuple[int, ...]) -> PooledEdge:
        """An idle edge, or a new one. Among an owner's idle edges it is the one whose last prompt shares the longest
        prefix with this one.

        What an edge remembers shows in the time that the next prompt takes, so nothing is kept for another owner.
        """
        with self._lock:
            mine = [edge for edge in self._idle if edge.owner == owner]
            if mine:
                best = max(reversed(mine), key=lambda edge: common_length(edge.prompt, ids))
            elif len(self._idle) >= self._config.answers:
                best = self._idle[0]
            else:
                best = None
            if best is not None:
                self._idle.remove(best)
        if best is None:
            best = self._new_edge()
        if best.owner != owner:
            best.decoder.serve(scope_of(owner))
        best.owner, best.prompt = owner, ids
        return best

    def _give_back(self, edge: PooledEdge) -> None:
        with self._lock:
            self._idle.append(edge)
            surplus = self._idle.pop(0) if len(self._idle) > self._config.answers else None
        if surplus is not None:
            surplus.link.close()

    def _new_edge(self) -> PooledEdge:
        config = self._config
        link = connect(config.connect, connect_timeout_s=CONNECT_TIMEOUT_S, key=config.key)
        decoder = EdgeDecoder(
            link,
            self._draft,
            config.method,
            config.gamma,
            resume_timeout_s=config.patience_s,
            keep_bytes=KEPT_BYTES // config.answers,
        )
        return PooledEdge(link, decoder)


def scope_of(owner: str) -> str:
    """The scope in which the verifier shares caches: one per API key, which does not reveal the key's name."""
    return blake2b(owner.encode(), digest_size=16, person=b"specnav-api").hexdigest() if owner else ""


def _too_long(asked: ApiRequest, length: str, limit: int) -> ApiError:
    return wrong(
        asked.prompt_field,
        f"the prompt has {length} tokens and the model takes {limit} with the answer: shorten it",
        "context_length_exceeded",
    )

# SPDX-License-Identifier: Apache-2.0
"""The edge's side of an answer: open a session, draft, send, receive verdicts, yield verified tokens.

EdgeDecoder uses one Link and owns no model weights. It yields only tokens that the cloud has verified. Its output does
not depend on the draft model, the link, or how often the link was lost.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from specdec.drafting import ChainDrafter, Drafter, DraftModel, OutcomeDrafter, TreeDrafter
from specdec.drafting.length import LengthPolicy
from specdec.drafting.lookup.drafter import BetterDrafter, LookupDrafter
from specdec.drafting.lookup.suffixes import MOST_TOKENS, SuffixMemory, special_ids
from specdec.drafting.memory import KEPT_BYTES, PromptMemory
from specdec.edge.auto import AutoDrafters, AutoRounds, opening
from specdec.edge.controller import Choice, Controller
from specdec.edge.liveness import Patience
from specdec.edge.protocol import (
    Cancelled,
    Opening,
    PicturesWanted,
    SessionForgotten,
    TargetUnknown,
    check_draft_size,
    check_ids,
    check_known_ids,
    check_method,
    check_prompt,
    check_tokenizer,
    check_vocabulary,
    same_target,
)
from specdec.edge.rounds import Rounds
from specdec.edge.session import EdgeSession
from specdec.edge.split import SplitRounds
from specdec.edge.stats import AnswerStats, Finish
from specdec.errors import (
    LinkLost,
    ModelError,
    NoRoom,
    OptionsError,
    ProtocolError,
    SpecdecError,
    TargetChanged,
    VerifierBusy,
    first_line,
)
from specdec.estimates.measured import Measured
from specdec.link.channel import Link, connect
from specdec.link.pictures import KnownPictures
from specdec.link.wire import Welcome
from specdec.methods import METHODS, get_method
from specdec.models import LoadedModel, Prompt
from specdec.models.loaded import first_difference
from specdec.models.split import FrontPart
from specdec.models.timing.row_times import paced_row_times
from specdec.options import DecodingOptions, GenerationOptions
from specdec.sampling.recoveries import Recovery
from specdec.settings import settings_of
from specdec.text.stop import StopText
from specdec.tracing import AnswerTrace, Tracing, tracing_from_environment
from specdec.verdict_log import LoggedAnswer, VerdictLog

__all__ = ["EdgeDecoder", "GenerationOptions", "Prompt", "connect"]

MAX_GAMMA = 64
_GREETINGS = 3
"""Most new greetings during one answer, after the verifier refused it because its target changed."""
_log = logging.getLogger(__name__)


class DraftFailed(SpecdecError):
    """The draft model has failed. The answer continues without it, unless a rejection was received in part."""


class EdgeDecoder:
    """Generates answers over a link with one method; one answer at a time."""

    def __init__(
        self,
        link: Link,
        draft_model: LoadedModel | None = None,
        method: str = "sd",
        gamma: int = DecodingOptions.gamma,
        resume_timeout_s: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
        front_model: LoadedModel | None = None,
        tokenizer: Any = None,
        tracing: Tracing | None = None,
        keep_bytes: int = KEPT_BYTES,
        verdict_log: VerdictLog | None = None,
    ) -> None:
        """Prepare a decoder; the link is used by the first answer.

        Args:
            link: Connection to the verifier, as `connect` makes it.
            draft_model: The draft model; None for a method that does not draft with a model on the edge.
            method: A name of `specdec.methods.METHODS`, with axes.
            gamma: Draft tokens per round.
            resume_timeout_s: Seconds to keep retrying after a lost link or with a busy verifier; 0: raise at once.
            clock: Seconds, monotonic.
            front_model: The target, for a method that runs its first layers on the edge.
            tokenizer: Decodes answers to find stop strings; None: the tokenizer of a model given here. It must have
                the target's vocabulary, as what made the prompts.
            tracing: Receives spans; None: as set by the environment (specdec.tracing).
            keep_bytes: Largest cache of the draft model that is kept between prompts; 0: none.
            verdict_log: Log for finished answers; None: no log.

        Raises:
            OptionsError: Unknown method, gamma out of range, a method that lacks its model, or tracing that is
                requested and not available.
        """
        self._method = get_method(method)
        replace(settings_of(DecodingOptions)["gamma"], high=MAX_GAMMA).check(gamma)
        if not 0 <= resume_timeout_s <= 86400:
            raise OptionsError(f"resume_timeout_s must be a number from 0 to 86400 s, got {resume_timeout_s!r}")
        if self._method.needs_draft_model and draft_model is None:
            raise OptionsError(
                f"method {method!r} drafts on the edge: give a draft model, or use method 'ngram' or 'ar'"
            )
        if self._method.split and front_model is None:
            raise OptionsError(
                f"method {method!r} runs layers of the target on the edge: give the target model"
            )
        self._link = link
        self._draft_model = draft_model
        self._keep_bytes = keep_bytes
        self._verdict_log = verdict_log
        self._memory = None if draft_model is None else PromptMemory(draft_model, keep_bytes)
        self._next_draft: LoadedModel | None = None
        self._welcome: Welcome | None = None
        self._began_under: Welcome | None = None
        self._said = SuffixMemory(MOST_TOKENS if keep_bytes else 0)
        self._front_model = front_model
        model = draft_model or front_model
        self._tokenizer = tokenizer if tokenizer is not None or model is None else model.tokenizer
        self._tokenizer_knows: bytes | None = None
        self._pictures = KnownPictures()
        self._scope = ""
        self._gamma = gamma
        self._measure_anew()
        self._patience = Patience(resume_timeout_s, clock)
        self._clock = clock
        self._tracing = tracing or tracing_from_environment("specnav-edge")
        self._busy = threading.Lock()
        self._stats = AnswerStats()
        self._session: EdgeSession | None = None

    def swap_draft(self, draft_model: LoadedModel) -> None:
        """Use another draft model from the next answer on. An answer in progress keeps its model.

        Thread-safe. No answer changes, because a draft only proposes.

        Raises:
            OptionsError: The method uses no draft model.
            ModelError: The new model has another vocabulary; the old model stays in use.
        """
        if not self._method.needs_draft_model:
            raise OptionsError(f"method {self._method.name!r} uses no draft model, so there is none to swap")
        if self._welcome is not None:
            check_vocabulary(self._welcome, draft_model)
        elif self._draft_model is not None:
            old = self._draft_model
            if draft_model.vocabulary_fingerprint != old.vocabulary_fingerprint:
                raise ModelError(
                    f"drafts {draft_model.path} and {old.path} have different vocabularies "
                    f"({first_difference(draft_model, old)}): the old draft stays; use one of the target's family"
                )
        self._next_draft = draft_model
        if self._busy.acquire(blocking=False):
            try:
                self._take_over_next_draft()
            finally:
                self._busy.release()

    def _take_over_next_draft(self) -> None:
        """Switch to the next draft model, if any; discards the old model's measurements and caches."""
        model, self._next_draft = self._next_draft, None
        if model is not None:
            self._draft_model, self._memory = model, PromptMemory(model, self._keep_bytes)
            self._measure_anew()

    def _measure_anew(self) -> None:
        self._measured = Measured()
        self._plan_anew()

    def _plan_anew(self) -> None:
        """Reset the controller and the length policy, because the measurements changed."""
        if self._draft_model is not None:
            self._measured.draft_forwards.told(paced_row_times(self._draft_model))
        self._controller = Controller(self._measured, self._gamma)
        tree = self._method.tree
        self._length = LengthPolicy(self._method.length, self._gamma if tree is None else tree.depth)

    def knows_as(self, other: EdgeDecoder) -> None:
        """Share the measurements and the controller of another decoder with the same models and verifier. The two
        decoders must not answer at the same time.
        """
        self._measured, self._controller = other._measured, other._controller

    @property
    def draft_model(self) -> LoadedModel | None:
        """The draft model, or None."""
        return self._draft_model

    def serve(self, scope: str) -> None:
        """Serve another user from the next answer on. Drops all caches, whose timing would reveal earlier answers.

        scope: up to 64 characters; the verifier shares caches of prompts and pictures only within one scope.
        """
        self._scope = scope
        if self._memory is not None:
            self._memory.forget()
        self._said = SuffixMemory(MOST_TOKENS if self._keep_bytes else 0)
        self._pictures = KnownPictures()

    @property
    def memory(self) -> PromptMemory | None:
        """The caches kept between prompts; None without a draft model."""
        return self._memory

    @property
    def stats(self) -> AnswerStats:
        """Statistics of the answer in progress, or of the last one."""
        session = self._session  # read once: the answer may end meanwhile, in another thread
        return self._stats if session is None else session.stats("running")

    def generate(
        self,
        prompt: Prompt,
        options: GenerationOptions | None = None,
        cancel: threading.Event | None = None,
        history: Sequence[int] = (),
    ) -> Iterator[list[int]]:
        """Decode one answer, in chunks of verified tokens.

        If the draft model fails, or its context is full, the answer continues without it.

        Args:
            prompt: As `chat_prompt` makes it.
            options: Length, sampling, stop strings and grammar; None: the defaults, which are greedy.
            cancel: When set, the answer ends early.
            history: Token ids of the same answer that were verified before. They are replayed, not yielded.

        Yields:
            Verified token ids, one chunk per verdict, without the EOS id.

        Raises:
            LinkLost: No reply from the verifier within the time-outs, `resume_timeout_s` included.
            VerifierBusy: The verifier has no room, also after `resume_timeout_s`.
            ProtocolError: The verifier refused a request or broke the wire contract.
            VersionMismatch: Edge and cloud speak different versions of the wire.
            TargetChanged: The verifier's target is not the one that began the answer.
            ModelError: The prompt cannot be used.
            OptionsError: Stop strings without a tokenizer, a request that the verifier reports as too large, or this
                decoder is in the middle of an answer.
            DraftFailed: The draft model failed while a rejection that only it can resolve was received.
        """
        options = options or GenerationOptions()
        stop = StopText(self._tokenizer, options.stop, history, options.min_new_tokens)
        check_ids(prompt.ids, "the prompt's ids")
        check_ids(history, "the history's ids")
        if not self._busy.acquire(blocking=False):
            raise OptionsError(
                "this decoder is in the middle of an answer: use one decoder per concurrent answer"
            )
        self._take_over_next_draft()
        cancel = cancel or threading.Event()
        trace = None
        if self._tracing is not None:
            trace = AnswerTrace(self._tracing, self._clock, self._method.name)
        session = EdgeSession(self._link, self._clock, cancel, list(history), self._measured, stop, trace)
        self._session = session
        finish: Finish = "failed"
        try:
            self._link.begin_answer(prompt.ids, prompt.images)
            yield from _Answer(self, session, prompt, options).chunks()
            finish = session.finish
        except (Cancelled, GeneratorExit) as end:
            finish = "cancelled"
            if isinstance(end, GeneratorExit):
                raise
        finally:
            session.close()
            self._link.end_answer()
            if self._memory is not None:
                self._memory.rest()
            self._stats = session.stats(finish)
            asked = session.record.opened_s is not None  # not if the history was a whole answer already
            if self._verdict_log is not None and asked and finish in ("eos", "length", "stop"):
                self._verdict_log.add(self._said_in(session, prompt, options))
            if trace is not None:
                trace.end(self._clock(), finish, self._stats.tokens)
            self._session = None
            self._busy.release()

    def _check_target(self, session: EdgeSession, welcome: Welcome) -> None:
        """Discard measurements of a previous target. Raises TargetChanged if the answer began with that target, either
        in this call or in an earlier call that produced its history.
        """
        if self._welcome is not None and not same_target(self._welcome, welcome):
            self._welcome = welcome
            self._measured.forget_target()
            self._plan_anew()
            _log.warning("the verifier has another target now (%s): discarding measurements", welcome.model)
        if not session.began or self._began_under is None:
            self._began_under = welcome
        elif not same_target(self._began_under, welcome):
            raise TargetChanged(
                f"the verifier's target has changed in the middle of an answer (now {welcome.model}): ask again"
            )

    def _said_in(self, session: EdgeSession, prompt: Prompt, options: GenerationOptions) -> LoggedAnswer:
        """A finished answer, for the verdict log."""
        assert self._welcome is not None, "it was finished over a link"
        ended = getattr(self._tokenizer, "eos_token_id", None) if session.finish == "eos" else None
        answer = (*session.answer, *(() if ended is None else (ended,)))
        rounds = tuple((one.drafted, one.accepted) for one in self._stats.rounds)
        vocabulary, temperature = self._welcome.vocabulary, options.temperature
        prompt_ids, images = tuple(prompt.ids), tuple(prompt.images)
        return LoggedAnswer(vocabulary, answer, rounds, temperature, prompt_ids, images, self._welcome.weights)

    def _new_draft_model(self, prompt: Prompt, options: GenerationOptions) -> DraftModel | None:
        model = self._draft_model
        if not self._method.needs_draft_model or model is None:
            return None
        if not _fits(model, prompt):
            _log.warning("the prompt exceeds the draft model's context: the verifier continues alone")
            return None
        return DraftModel(model, options, self._memory)

    def _new_drafter(
        self, model: DraftModel | None, prompt: Prompt, options: GenerationOptions
    ) -> Drafter | None:
        method = self._method
        if method.drafts and not method.needs_draft_model:
            never = special_ids(self._tokenizer) if self._tokenizer is not None else frozenset(prompt.ids)
            # Without a tokenizer the placeholder id of pictures is unknown, so no id of the prompt may be drafted.
            return LookupDrafter(self._said, never=never if prompt.images else frozenset())
        if model is None:
            return None
        if method.drafter == "both":
            return BetterDrafter(model, self._said)
        if method.predrafts:
            return OutcomeDrafter(model, method.rows, method.order, method.overlap != "hints", method.tree)
        if method.tree is not None:
            return TreeDrafter(model, method.tree.budget)
        return ChainDrafter(model, method.recovery_at(options.temperature) is not Recovery.NOISE)

    def _new_front(self) -> FrontPart | None:
        if not self._method.split or self._front_model is None:
            return None
        return FrontPart(self._front_model, self._method.front_layers)

    def _connect(self, session: EdgeSession) -> Welcome:
        """Connect, and check the verifier's target and vocabulary; returns its greeting."""
        welcome = self._link.ensure_connected(session.cancel.is_set)
        self._check_target(session, welcome)
        self._welcome = welcome
        model = self._front_model if self._method.split else self._draft_model
        if model is not None:  # also where it drafts nothing: its tokenizer made the prompt
            check_vocabulary(welcome, model)
        is_its_own = model is not None and self._tokenizer is model.tokenizer
        if self._tokenizer is not None and not is_its_own and self._tokenizer_knows != welcome.vocabulary:
            check_tokenizer(welcome, self._tokenizer)
            self._tokenizer_knows = welcome.vocabulary
        return welcome


class _Answer:
    """One answer, over as many sessions as needed: after a fault a new session continues from the verified tokens.

    A session is driven by rounds of drafts, by a layer split, or by the cloud alone. If the draft model fails or its
    context is full, the cloud completes the answer alone.
    """

    def __init__(
        self, decoder: EdgeDecoder, session: EdgeSession, prompt: Prompt, options: GenerationOptions
    ) -> None:
        self._decoder = decoder
        self._session = session
        self._prompt = prompt
        self._options = options
        self._draft_model = decoder._new_draft_model(prompt, options)
        self._drafter = decoder._new_drafter(self._draft_model, prompt, options)
        self._lookup: LookupDrafter | None = None
        self._front = decoder._new_front()
        self._is_prefilled = self._is_confirmed = False
        self._given = len(session.answer)
        self._greetings = 0

    def chunks(self) -> Iterator[list[int]]:
        """Yield verified tokens, one chunk per verdict. Raises errors that cannot be recovered from."""
        session = self._session
        self._decoder._patience.begin()
        while not session.finished:  # a history may hold a stop string
            try:
                advance = self._open()
                while not session.finished:
                    chunk = advance() if self._drafter is None else _drafting(advance)
                    if chunk:
                        yield self._give(chunk)
                    if self._is_draft_context_full and session.alone_is_possible:
                        _log.warning("the draft model's context is full: the verifier continues alone")
                        session.go_alone(0)
                        self._stop_drafting()
                        advance = session.receive
            except DraftFailed as error:
                verified = self._go_on_without_drafts(error)
                if verified:
                    yield verified
            except TargetUnknown as error:
                self._greet_again(error)
            except PicturesWanted as error:
                session.check_cancelled()
                session.prepare_resume(busy=True)
                self._decoder._pictures.missing(error.missing)
            except LinkLost as error:
                self._wait_for_link(error)

    def _open(self) -> Callable[[], list[int]]:
        """Open a session with the tokens verified so far; returns the function that does one step of it."""
        decoder, session, options = self._decoder, self._session, self._options
        welcome = decoder._connect(session)
        if session.began:
            decoder._link.answer_began()
        check_known_ids(welcome, self._prompt.ids, "the prompt's ids")
        check_known_ids(welcome, session.answer, "the history's ids")
        check_prompt(welcome, self._prompt)
        method, gamma = decoder._method, decoder._gamma
        if method.drafts and self._drafter is None:
            method = METHODS["ar"]
        check_method(welcome, method, options)
        if method.drafts:
            check_draft_size(welcome, gamma if method.tree is None else method.tree.budget)
        decoder._measured.told(welcome.row_us, welcome.draft_us)
        choice: Choice | None = None
        if method.controlled:
            decoder._controller.told(welcome)
            choice = decoder._controller.opening(options.max_new_tokens)
            method, gamma = opening(method, choice)
        images = decoder._pictures.to_send(welcome, self._prompt.images)
        front_layers = 0 if self._front is None else self._front.layers
        self._is_confirmed = False
        session.open(
            Opening(self._prompt, options, welcome, method, gamma, images, front_layers, decoder._scope)
        )
        if method.cloud != "stream" and (choice is None or choice.plan.needs_model):
            self._prefill()  # while the cloud prefills
        return self._driver(choice)

    def _driver(self, choice: Choice | None) -> Callable[[], list[int]]:
        """The function that does one step of the open session. choice: for a controlled method."""
        decoder, session, drafter = self._decoder, self._session, self._drafter
        method, clock = decoder._method, decoder._clock
        if drafter is None:
            if self._front is None:
                return session.receive
            return SplitRounds(session, self._front, self._prompt, clock).advance
        if choice is not None and self._draft_model is not None and isinstance(drafter, OutcomeDrafter):
            model, controller = self._draft_model, decoder._controller
            if self._lookup is None:
                self._lookup = LookupDrafter(decoder._said, model.eos_ids, model.never_drafted)
                self._lookup.prefill(self._prompt)
            drafters = AutoDrafters(drafter, ChainDrafter(model), self._lookup)
            return AutoRounds(session, drafters, method, controller, clock, choice, self._prefill).advance
        return Rounds(session, drafter, method, decoder._length, decoder._measured, clock).advance

    def _prefill(self) -> None:
        """Prefill the draft model, once."""
        drafter = self._drafter
        if drafter is None or self._is_prefilled:
            return
        try:
            self._session.measure_prefill(lambda: drafter.prefill(self._prompt))
        except NoRoom as error:  # other answers hold the memory
            raise _failed(error) from error
        except SpecdecError:
            raise
        except Exception as error:
            raise _failed(error) from error
        self._is_prefilled = True

    def _give(self, chunk: list[int]) -> list[int]:
        """Account for a chunk about to be yielded: it shows that the verifier has the pictures and that it replies."""
        if not self._is_confirmed:
            self._decoder._pictures.confirmed()
            self._decoder._link.answer_began()
            self._is_confirmed = True
        self._decoder._patience.went_on()
        self._given += len(chunk)
        return chunk

    @property
    def _is_draft_context_full(self) -> bool:
        return self._draft_model is not None and self._draft_model.room(len(self._session.answer)) < 1

    def _stop_drafting(self) -> None:
        self._draft_model = self._drafter = None

    def _go_on_without_drafts(self, error: DraftFailed) -> list[int]:
        """The draft model has failed: let the cloud decode alone in the next session. Returns tokens that the failed
        step had verified. Raises the error if a rejection was received in part: resolving it takes the draft model.
        """
        session = self._session
        if self._decoder._memory is not None:
            self._decoder._memory.forget()
        if session.rejection_is_pending:
            raise error
        _log.warning("%s: the verifier continues alone", error)
        verified = session.answer[self._given :]
        self._given += len(verified)
        if not session.finished:
            session.close()
            self._stop_drafting()
        return verified

    def _greet_again(self, error: TargetUnknown) -> None:
        """Prepare to reopen at once; raises ProtocolError after too many greetings."""
        self._session.check_cancelled()
        self._greetings += 1
        if self._greetings > _GREETINGS:
            raise ProtocolError(f"{error}; its greetings contradict its replies: report this as a bug") from error
        self._session.prepare_resume(busy=True)

    def _wait_for_link(self, error: LinkLost) -> None:
        """Prepare to reopen after a pause; raises the error once the time for retries is over."""
        decoder, session = self._decoder, self._session
        session.check_cancelled()
        session.prepare_resume(isinstance(error, VerifierBusy))
        is_forgotten = isinstance(error, SessionForgotten)
        if not is_forgotten:
            decoder._link.move_on()
        # A verifier that forgot the session is reachable; it only needs the session again.
        pause_s = decoder._patience.pause_s(error, endless=is_forgotten and not session.fruitless)
        if pause_s is None:
            raise error
        session.cancel.wait(pause_s)
        session.check_cancelled()


def _fits(model: LoadedModel, prompt: Prompt) -> bool:
    """Whether the prompt fits the draft model's context; True if the model cannot take its images at all."""
    try:
        length = model.prompt_length(prompt) if prompt.images else len(prompt.ids)
        return length < model.context_limit
    except ModelError:
        return True


def _failed(error: Exception) -> DraftFailed:
    return DraftFailed(f"the draft model has failed ({first_line(error)})")


def _drafting(advance: Callable[[], list[int]]) -> list[int]:
    """One step of a method that drafts. Raises DraftFailed for errors that come from neither link nor verifier."""
    try:
        return advance()
    except (DraftFailed, LinkLost, ProtocolError, OptionsError, Cancelled):
        raise
    except Exception as error:
        raise _failed(error) from error

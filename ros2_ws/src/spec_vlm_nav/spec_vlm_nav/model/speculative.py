# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The decider by speculative decoding: it drafts on the robot and verifies in the cloud.

With `asking` and `link_monitor` it is the only module of this package that touches models and
links. Unmarked text was verified by the target; text of the draft model alone is always marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
import threading
import time

from PIL import Image
from spec_vlm_nav.camera.images import to_jpeg
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.language.prompting import build_prompt, choose_frames, PromptSpec
from spec_vlm_nav.model.asking import grammars_of, QuestionWriter, spec_of
from spec_vlm_nav.model.course import course_of, known_so_far, origins_of, RoundHistory
from spec_vlm_nav.model.decider import (
    DecisionFailed,
    DecisionJob,
    DecoderSettings,
    DRAFT_ONLY,
    LinkReport,
    ModelAnswer,
    ModelQuestion,
    OnText,
)
from spec_vlm_nav.model.growing_answer import answer_of, CanceledOrLost, GrowingAnswer
from spec_vlm_nav.model.link_monitor import LinkMonitor
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.stats import Span
from specdec.energy import find_sensors, Mark, Meter
from specdec.errors import ModelError, OptionsError, SpecdecError
from specdec.link.channel import Link
from specdec.link.keys import read_key
from specdec.methods import get_method
from specdec.models import GgufOptions, load_draft, load_draft_tokenizer, LoadedModel
from specdec.models.loaded import first_difference
from specdec.models.local import stream_local
from specdec.models.threads import check_threads, set_threads
from specdec.text.streaming import pieces_of, StreamingText
import torch

WARM_UP_SIZE = (224, 140)
_OF_MODEL = ("draft_model", "gguf", "device", "dtype", "quantize", "threads", "energy_root")
_OF_LINK = ("verifier", "verifier_key", "connect_timeout_s", "reply_timeout_s")


@dataclass
class DecodingCounts:
    """Event counts since construction. Only the decision thread writes them."""

    answers: int = 0
    unverified_answers: int = 0
    verified_later: int = 0
    failures: int = 0
    canceled: int = 0
    resumes: int = 0
    decodes_cut: int = 0
    drafts_swapped: int = 0


def energy_figures(meter: Meter, decision: float | None) -> dict[str, object]:
    """
    Return the energy figures of the robot's computer, for diagnostics.

    They are the joules of the last decision, the present power, and the idle power (the lowest
    second so far).
    """
    if not meter.sensors:
        return {"energy": "no sensor"}
    told = {
        "decision J": decision,
        "power W": meter.watts,
        "idle power W": meter.idle_watts,
    }
    known = {name: round(value, 3) for name, value in told.items() if value is not None}
    return {"energy": ", ".join(meter.sensors), **known}


class SpeculativeDecider:
    """
    Decides with specdec's edge decoder and a cloud verifier.

    It has a link monitor and, with on_link_loss draft_only_slow, decides with the draft alone.

    Construction does all slow first-time work: loading, and one forward pass of each kind.
    """

    def __init__(self, settings: DecoderSettings) -> None:
        """
        Load the draft model and its tokenizer.

        Raises SpecdecError or NavigationError, each with a one-line message.
        """
        spec = fitting_spec(settings, get_method(settings.method).needs_draft_model)
        if settings.verifier_key:
            read_key(settings.verifier_key)  # reports an unusable key now
        check_threads(settings.threads)
        torch.set_num_threads(settings.threads)
        self._model: LoadedModel | None = None
        if get_method(settings.method).needs_draft_model:
            self._model = _load(settings, settings.draft_model)
        tokenizer = self._model.tokenizer if self._model else load_draft_tokenizer(settings.draft_model)
        # Replaced atomically: `use` may be called during a decision.
        grammars = self._model.own_grammars if self._model else grammars_of(tokenizer)
        self._current = (settings, QuestionWriter(spec, tokenizer, grammars))
        self._current[1].options(settings)  # reports a grammar that does not fit now
        self._counts = DecodingCounts()
        self._monitor: LinkMonitor | None = None
        self._losses_before = 0
        self._link: Link | None = None
        self._connections_seen = 0
        self._decoder: tuple[tuple[str, int, float], EdgeDecoder] | None = None
        self._growing: GrowingAnswer | None = None
        self._course = RoundHistory()
        root = settings.energy_root
        self._meter = Meter([] if root == "none" else find_sensors(Path(root)))
        self._joules: float | None = None
        self._warm_up(self._model)

    def check(self, settings: DecoderSettings) -> None:
        now = self._current[0]
        fixed = _OF_MODEL if self._monitor is None else _OF_MODEL + _OF_LINK
        for name in fixed:
            if getattr(settings, name) != getattr(now, name):
                raise ParameterError(
                    f"parameter {name} cannot change now: the model is loaded and the link in use"
                )
        self._fitting_asker(settings)

    def use(self, settings: DecoderSettings) -> None:
        self._current = (settings, self._fitting_asker(settings))
        if (monitor := self._monitor) is not None:
            monitor.timeout_s = settings.link_timeout_s

    def swap_draft(self, folder: str) -> None:
        old = self._model
        if old is None:
            raise ParameterError(
                "no draft model is loaded, because the node was configured with a method that needs none"
            )
        new = _load(self._current[0], folder)
        if new.vocabulary_fingerprint != old.vocabulary_fingerprint:
            raise ParameterError(
                f"draft {folder} has another vocabulary than {old.path} "
                f"({first_difference(new, old)}): the old draft stays; "
                "use a draft of the target's family"
            )
        self._warm_up(new)
        self._model = new  # the decision thread uses it from its next answer on

    def open(  # noqa: A003
        self, on_link_change: Callable[[LinkState], None] = lambda state: None
    ) -> None:
        self._meter.start()
        s = self._current[0]
        if self._monitor is None:
            self._monitor = LinkMonitor(
                s.verifier,
                s.link_timeout_s,
                s.connect_timeout_s,
                on_link_change,
                key=s.verifier_key or None,
            )

    def close(self) -> None:
        self._meter.close()
        if self._monitor is not None:
            self._monitor.close()
            self._losses_before += self._monitor.losses
            self._monitor = None
        if self._link is not None:
            self._link.close()
            self._link = self._decoder = None

    def link(self) -> LinkReport:
        monitor = self._monitor
        return LinkReport() if monitor is None else monitor.report()

    def figures(self) -> Mapping[str, object]:
        monitor, counts = self._monitor, vars(self._counts)
        losses = self._losses_before + (0 if monitor is None else monitor.losses)
        link = self._link  # another thread may close it
        malformed = 0 if link is None else link.malformed
        energy = energy_figures(self._meter, self._joules)
        return {**counts, "link_losses": losses, "malformed_messages": malformed, **energy}

    def so_far(self) -> Sequence[tuple[str, int]]:
        asker, tell, kept = self._current[1], self._growing, self._decoder
        if tell is None:
            return ()
        ids, verified = tuple(tell.ids), tell.verified
        # Without verified tokens the decoder's rounds may belong to the previous answer.
        rounds = kept[1].stats.rounds if verified and kept is not None else ()
        count, origins = known_so_far(rounds, min(verified, len(ids)), len(ids))
        pieces = pieces_of(asker.tokenizer, ids[:count], ended=False)
        return tuple(zip(pieces, origins, strict=True))

    def course(self) -> RoundHistory:
        kept, method = self._decoder, self._current[0].method
        if kept is not None and kept[0][0] == method and (rounds := kept[1].stats.rounds):
            self._course = course_of(method, rounds)
        return self._course if self._course.method == method else RoundHistory(method)

    def decide(self, job: DecisionJob, cancel: threading.Event, on_text: OnText) -> ModelAnswer:
        mark = self._meter.mark()
        try:
            answer = self._decide(job, cancel, on_text)
        except DecisionFailed as failure:
            failure.answer = self._with_joules(failure.answer, mark)
            raise
        return self._with_joules(answer, mark)

    def _with_joules(self, answer: ModelAnswer, mark: Mark) -> ModelAnswer:
        self._joules = self._meter.since(mark)
        return replace(answer, joules=self._joules)

    def _decide(self, job: DecisionJob, cancel: threading.Event, on_text: OnText) -> ModelAnswer:
        s, asker = self._current
        began = time.monotonic()
        try:
            question, jpeg = asker.ask(job, s)
            prepared_ms = (time.monotonic() - began) * 1e3
            tell = GrowingAnswer(StreamingText(asker.tokenizer), lambda text, bare: on_text(text, jpeg, bare))
            self._growing = tell
            if s.on_link_loss == DRAFT_ONLY and self.link().state is LinkState.LOST:
                answer = self._alone(question, ModelAnswer(), began, tell, cancel)
            else:
                try:
                    answer = self._verified(s, question, prepared_ms, tell, cancel)
                except DecisionFailed as failure:
                    if failure.code is not ErrorCode.LINK_LOST or s.on_link_loss != DRAFT_ONLY:
                        raise
                    known = replace(question, verified=failure.answer.token_ids)
                    answer = self._alone(known, failure.answer, began, tell, cancel)
        except DecisionFailed as failure:
            self._count_failure(failure)
            raise
        self._counts.answers += 1
        self._counts.unverified_answers += answer.unverified
        return answer

    def verify(self, question: ModelQuestion, cancel: threading.Event) -> ModelAnswer:
        s, asker = self._current
        tell = GrowingAnswer(StreamingText(asker.tokenizer), lambda text, bare: None)
        tell.push(question.verified)
        try:
            answer = self._verified(s, question, 0.0, tell, cancel)
        except DecisionFailed as failure:
            self._count_failure(failure)
            raise
        self._counts.verified_later += 1
        return answer

    def _verified(
        self,
        s: DecoderSettings,
        question: ModelQuestion,
        prepared_ms: float,
        tell: GrowingAnswer,
        cancel: threading.Event,
    ) -> ModelAnswer:
        """Return the target's answer. Raises DecisionFailed with the answer so far."""
        decoder = self._edge(s)
        failure: tuple[ErrorCode, str] | None = None
        # With draft_only_slow, decoding ends as soon as the link counts as lost.
        patience = cancel if s.on_link_loss != DRAFT_ONLY else CanceledOrLost(cancel, self.link)
        try:
            for chunk in decoder.generate(question.prompt, question.options, patience, question.verified):
                if self._monitor is not None:
                    self._monitor.heard()
                tell.push(chunk)
        except (ModelError, OptionsError) as error:  # a retry would fail, too
            failure = (ErrorCode.INVALID_INPUT, str(error))
        except SpecdecError as error:
            # A verifier that refuses the robot (busy, other version or vocabulary) counts as lost.
            failure = (ErrorCode.LINK_LOST, str(error))
        if failure is None and decoder.stats.finish == "cancelled":
            failure = (
                ErrorCode.LINK_LOST,
                self.link().reason or "the link to the verifier is lost",
            )
        self._counts.resumes += decoder.stats.resumes
        if failure is None and not cancel.is_set():
            tell.finish()
        answer = answer_of(tell.text, tuple(tell.ids), question, decoder.stats, prepared_ms)
        answer = self._with_origins(answer, len(answer.token_ids))
        if cancel.is_set():
            raise DecisionFailed(ErrorCode.CANCELED, "canceled", answer)
        if failure is not None:
            raise DecisionFailed(*failure, answer)
        return answer

    def _edge(self, s: DecoderSettings) -> EdgeDecoder:
        """
        Return the decoder for these settings; it is kept over answers.

        It learns the times of the link and the models.
        """
        monitor = self._monitor
        if self._link is None:
            # Not `connect`: a key file that is unreadable now may be readable at the next decision.
            self._link = Link(s.verifier, s.connect_timeout_s, s.reply_timeout_s, key=s.verifier_key or None)
        elif monitor is not None and self._connections_seen not in (0, monitor.connections):
            # A connection from before an outage may look healthy but carry nothing while TCP backs
            # off.
            self._link.reset()
        self._connections_seen = 0 if monitor is None else monitor.connections
        kind = (s.method, s.gamma, s.resume_timeout_s)
        if self._decoder is None or self._decoder[0] != kind:
            model = self._model if get_method(s.method).needs_draft_model else None
            tokenizer = self._current[1].tokenizer
            self._decoder = (kind, EdgeDecoder(self._link, model, *kind, tokenizer=tokenizer))
        decoder, model = self._decoder[1], self._model
        if model is not None and decoder.draft_model not in (None, model):
            decoder.swap_draft(model)
            self._counts.drafts_swapped += 1
        return decoder

    def _alone(
        self,
        question: ModelQuestion,
        known: ModelAnswer,
        began: float,
        tell: GrowingAnswer,
        cancel: threading.Event,
    ) -> ModelAnswer:
        """
        Continue the verified beginning with the draft model alone; the result is marked.

        Raises DecisionFailed.
        """
        assert self._model is not None, "fitting_spec refuses this configuration"
        self._counts.decodes_cut += bool(known.prompt_ids)
        started_ms = (time.monotonic() - began) * 1e3
        tell.unverified = True
        first_ms = known.ttft_ms if question.verified else 0.0
        failure: str | None = None
        try:
            for token in stream_local(self._model, question.prompt, question.options, question.verified):
                if cancel.is_set():
                    break
                tell.push([token])
                first_ms = first_ms or (time.monotonic() - began) * 1e3
        except ModelError as error:
            failure = str(error)
        if not cancel.is_set():
            tell.finish()
        ended_ms = (time.monotonic() - began) * 1e3
        answer = replace(
            known,
            text=tell.text,
            token_ids=tuple(tell.ids),
            prompt_ids=tuple(question.prompt.ids),
            timeline=(*known.timeline, Span("edge", "draft alone", started_ms / 1e3, ended_ms / 1e3)),
            ttft_ms=first_ms or ended_ms,
            total_ms=ended_ms,
            open=question,
        )
        answer = self._with_origins(answer, len(question.verified))
        if cancel.is_set():
            raise DecisionFailed(ErrorCode.CANCELED, "canceled", answer)
        if failure is not None:
            raise DecisionFailed(ErrorCode.INVALID_INPUT, failure, answer)
        return answer

    def _with_origins(self, answer: ModelAnswer, verified: int) -> ModelAnswer:
        ids = answer.token_ids
        return replace(
            answer,
            pieces=pieces_of(self._current[1].tokenizer, ids),
            origins=tuple(origins_of(answer.rounds, verified, len(ids))),
        )

    def _fitting_asker(self, settings: DecoderSettings) -> QuestionWriter:
        """Return the question writer for these settings. Raises ParameterError if they do not fit."""
        spec = fitting_spec(settings, self._model is not None)
        asker = replace(self._current[1], spec=spec)
        asker.options(settings)
        return asker

    def _count_failure(self, failure: DecisionFailed) -> None:
        if failure.code is ErrorCode.CANCELED:
            self._counts.canceled += 1
        else:
            self._counts.failures += 1

    def _warm_up(self, model: LoadedModel | None) -> None:
        """
        Run the draft once on a black picture.

        A model that cannot process a prompt fails here, not during a decision.
        """
        asker = self._current[1]
        black = to_jpeg(Image.new("RGB", WARM_UP_SIZE))
        frames = choose_frames(asker.spec, (), black, black)
        prompt = build_prompt(asker.spec, asker.tokenizer, "warm up", frames)
        if model is not None:
            try:
                session = model.new_session()
                session.prefill(model.encode(prompt))
                session.extend([prompt.ids[0]])
            except ModelError as error:  # unlike the verifier, the robot may name the path
                raise ModelError(f"{model.path} cannot draft: {error}") from error


def _load(settings: DecoderSettings, folder: str) -> LoadedModel:
    how = (settings.device, settings.dtype, settings.quantize)
    draft = load_draft(folder, *how, gguf=GgufOptions.read(settings.gguf))
    set_threads(0, draft)
    return draft


def fitting_spec(settings: DecoderSettings, has_draft_model: bool) -> PromptSpec:
    """
    Return the prompt specification.

    Raises ParameterError if the settings need a draft model that is not loaded, or an unsupported
    answer order.
    """
    if get_method(settings.method).needs_draft_model and not has_draft_model:
        raise ParameterError(
            f"parameter method = {settings.method!r} refused: the draft model is not loaded, "
            "because the node was configured with a method that needs none; configure it again"
        )
    if settings.on_link_loss == DRAFT_ONLY and not has_draft_model:
        raise ParameterError(
            f"parameter on_link_loss = {DRAFT_ONLY!r} refused: method {settings.method!r} "
            "loads no draft model that could decide alone; choose another method, or stop or hold"
        )
    return spec_of(settings)

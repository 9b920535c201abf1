# SPDX-License-Identifier: Apache-2.0
"""One decision of a replay, made with the robot's own picture settings, prompt, decoder and parser."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from spec_vlm_nav.camera.images import Frame, PictureOptions, RawImage
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.deciding.parts.current_decision import PAST_ACTIONS, PAST_FRAMES
from spec_vlm_nav.language.actions import Action, find_action, reasoning_of
from spec_vlm_nav.language.prompting import PromptSpec
from spec_vlm_nav.model.asking import QuestionWriter
from spec_vlm_nav.model.decider import DecisionJob
from specdec.edge.decoder import EdgeDecoder
from specdec.energy import Meter
from specdec.errors import ModelError
from specdec.models import Prompt
from specdec.options import GenerationOptions
from specdec.text.streaming import StreamingText
from specnav.bags.contents import NO_ACTION
from specnav.bags.records import DecisionRecord
from specnav.replay.plan import ReplayTask
from specnav.results.errors import one_line


@dataclass
class History:
    """Earlier pictures and actions of one instruction, which a prompt may include."""

    run: int = -1
    pictures: deque[bytes] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES))
    actions: deque[Action] = field(default_factory=lambda: deque(maxlen=PAST_ACTIONS))

    def begin(self, task: ReplayTask) -> None:
        """Forget everything if the instruction has changed."""
        if task.run != self.run:
            self.run = task.run
            self.pictures.clear()
            self.actions.clear()

    def add(self, task: ReplayTask, jpeg: bytes) -> None:
        """Remember a decided frame, and the robot's action for it."""
        if task.remembered:
            self.pictures.append(jpeg)
            if task.carried_out is not None:
                self.actions.append(task.carried_out)


@dataclass(frozen=True)
class Prompter:
    """Shared settings of all questions: wording, tokenizer, picture size, and limits of an answer."""

    spec: PromptSpec
    tokenizer: Any
    picture: PictureOptions
    options: GenerationOptions

    def prompt(self, task: ReplayTask, picture: bytes | RawImage, history: History) -> tuple[Prompt, bytes]:
        """The prompt of a frame and its encoded picture. Raises NavigationError."""
        frame = Frame(picture, divmod(task.frame.stamp_ns, 10**9), 0.0)
        past, actions = tuple(history.pictures), tuple(history.actions)
        job = DecisionJob(task.frame.number, task.instruction, frame, past, actions)
        return QuestionWriter(self.spec, self.tokenizer).prompt(job, self.picture)


class MethodDecider:
    """Decides frames with one method; keeps its decoder for all of them."""

    def __init__(
        self,
        method: str,
        decoder: EdgeDecoder,
        prompter: Prompter,
        clock: Callable[[], float] = time.perf_counter,
        meter: Meter | None = None,
    ) -> None:
        self.method, self.prompter = method, prompter
        self._decoder, self._clock = decoder, clock
        self._meter = meter or Meter([])

    def decide(
        self, task: ReplayTask, picture: bytes | RawImage, history: History
    ) -> tuple[DecisionRecord, bytes | None]:
        """The decision, and the picture given to the model (None: unusable). Raises specdec's errors except
        ModelError.
        """
        mark = self._meter.mark()
        record, jpeg = self._decide(task, picture, history)
        return msgspec.structs.replace(record, joules=self._meter.since(mark)), jpeg

    def _decide(
        self, task: ReplayTask, picture: bytes | RawImage, history: History
    ) -> tuple[DecisionRecord, bytes | None]:
        began = self._clock()
        try:
            prompt, jpeg = self.prompter.prompt(task, picture, history)
        except NavigationError as error:
            return failed(task, self.method, one_line(error)), None
        prepared_ms = (self._clock() - began) * 1e3
        text, ids = StreamingText(self.prompter.tokenizer), []
        action: Action | None = None
        decision_ms: float | None = None
        try:
            for chunk in self._decoder.generate(prompt, self.prompter.options):
                ids.extend(chunk)
                if text.push(chunk) and action is None and (action := find_action(text.text)) is not None:
                    decision_ms = (self._clock() - began) * 1e3
            text.finish()
        except ModelError as error:
            return failed(task, self.method, one_line(error)), jpeg
        if action is None and (action := find_action(text.text)) is not None:
            decision_ms = (self._clock() - began) * 1e3
        stats = self._decoder.stats
        record = DecisionRecord(
            frame=task.frame.number,
            stamp_ns=task.frame.stamp_ns,
            method=self.method,
            instruction=task.instruction,
            reference=task.reference,
            action=action.short if action is not None else NO_ACTION,
            text=text.text,
            reasoning=reasoning_of(text.text),
            decision_ms=decision_ms,
            ttft_ms=prepared_ms + stats.ttft_ms,
            total_ms=(self._clock() - began) * 1e3,
            ids=ids,
            prompt_tokens=len(prompt.ids),
            prompt_bytes=stats.prompt_bytes,
            drafted=[one.drafted for one in stats.rounds],
            accepted=[one.accepted for one in stats.rounds],
            gained=[one.gained for one in stats.rounds],
            uplink_bytes=[one.uplink_bytes for one in stats.rounds],
            downlink_bytes=[one.downlink_bytes for one in stats.rounds],
        )
        return record, jpeg


def failed(task: ReplayTask, method: str, error: str) -> DecisionRecord:
    """The record of a frame that could not be decided."""
    return DecisionRecord(
        frame=task.frame.number,
        stamp_ns=task.frame.stamp_ns,
        method=method,
        instruction=task.instruction,
        reference=task.reference,
        action="",
        error=error,
    )

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

"""An answer while it is decoded: its callback, its cancellation, and its final record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
import threading

from spec_vlm_nav.common.codes import LinkState
from spec_vlm_nav.model.decider import LinkReport, ModelAnswer, ModelQuestion
from specdec.edge.stats import AnswerStats, Span
from specdec.text.streaming import StreamingText


class CanceledOrLost(threading.Event):
    """An event that is set when `cancel` is set or while the link is lost."""

    def __init__(self, cancel: threading.Event, link: Callable[[], LinkReport]) -> None:
        super().__init__()
        self._cancel = cancel
        self._link = link

    def is_set(self) -> bool:
        """Whether either holds now."""
        return self._cancel.is_set() or self._link().state is LinkState.LOST

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `cancel`; returns whether either holds then."""
        self._cancel.wait(timeout)
        return self.is_set()


class GrowingAnswer:
    """
    A growing answer; on_text is called with its text and whether its end is unverified.

    unverified: set it when only the draft model continues. verified: number of ids before that.
    """

    def __init__(self, text: StreamingText, on_text: Callable[[str, bool], None]) -> None:
        self.ids: list[int] = []
        self.verified = 0
        self.unverified = False
        self._text = text
        self._on_text = on_text

    @property
    def text(self) -> str:
        """Return the text so far."""
        return self._text.text

    def push(self, ids: list[int] | tuple[int, ...]) -> None:
        """Append ids."""
        self.ids.extend(ids)
        if not self.unverified:
            self.verified = len(self.ids)
        if self._text.push(ids):
            self._on_text(self.text, self.unverified)

    def finish(self) -> None:
        """End the answer."""
        self._text.finish()
        self._on_text(self.text, self.unverified)


def answer_of(
    text: str,
    ids: tuple[int, ...],
    question: ModelQuestion,
    stats: AnswerStats,
    prepared_ms: float,
) -> ModelAnswer:
    """Build a ModelAnswer from specdec's AnswerStats. Its times begin `prepared_ms` before the generation."""
    prepared_s = prepared_ms / 1e3
    return ModelAnswer(
        text=text,
        token_ids=ids,
        prompt_ids=tuple(question.prompt.ids),
        rounds=stats.rounds,
        timeline=(
            Span("edge", "prepare frame", 0.0, prepared_s),
            *(replace(s, start_s=prepared_s + s.start_s, end_s=prepared_s + s.end_s) for s in stats.timeline),
        ),
        prompt_bytes=stats.prompt_bytes,
        prefill_ms=stats.prefill_ms,
        cloud_prefill_ms=stats.cloud_prefill_ms,
        ttft_ms=prepared_ms + stats.ttft_ms,
        total_ms=prepared_ms + stats.total_ms,
    )

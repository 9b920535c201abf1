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

"""The decision under way and what has come of it; what the next one may be made from, and when."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from spec_vlm_nav.camera.frame import Frame
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.parts.instruction import Instruction
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport
from spec_vlm_nav.language.actions import Action, reasoning_of
from spec_vlm_nav.model.answers import DecisionJob, ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered

PAST_FRAMES = 256  # kept for prompts with history
PAST_ACTIONS = 16


@dataclass
class DecisionInProgress:
    """
    A job that was begun, and what the worker has said of it so far.

    prefetched: begun before the motion's end; nothing is done about it until that has come.
    action: what the model says, once something was done about it.
    """

    job: DecisionJob
    began: float
    report: DecisionReport
    prefetched: bool = False
    found: ActionFound | None = None
    answered: Answered | None = None
    action: Action | None = None

    def is_due(self, early_action: bool) -> bool:
        """Whether the robot may act on it now. early_action: before the answer is complete."""
        ready = self.found is not None and (early_action or self.answered is not None)
        return ready and self.action is None

    def final_report(self, answer: ModelAnswer, code: ErrorCode, error: str) -> DecisionReport:
        """Return what it cost and the result; without a code what was said before stays."""
        report = replace(
            self.report,
            answer=answer,
            reasoning=reasoning_of(answer.text),
            model_action=self.action.sentence if self.action else "",
        )
        return report if code is ErrorCode.NONE else replace(report, code=code, error=error)


class CurrentDecision:
    """
    At most one decision at a time, and the frames and actions of those before it.

    look_after: the next one is made from a frame received after it, s. retry_at: not before, s.
    """

    def __init__(self, keep_frames: int = PAST_FRAMES) -> None:
        self.under_way: DecisionInProgress | None = None
        self.look_after = 0.0
        self.retry_at = 0.0
        self._jobs = 0
        self._frames: deque[bytes] = deque(maxlen=max(1, keep_frames))
        self._actions: deque[Action] = deque(maxlen=PAST_ACTIONS)

    @property
    def prefetched(self) -> DecisionInProgress | None:
        """Return the one under way if it was begun before the motion's end."""
        current = self.under_way
        return current if current is not None and current.prefetched else None

    @property
    def frame(self) -> Frame | None:
        """Return the frame that the one under way is made from."""
        return self.under_way.job.frame if self.under_way is not None else None

    def begin(self, given: Instruction, frame: Frame, now: float, prefetched: bool) -> DecisionJob:
        """Begin one; returns what the worker is to decide."""
        self._jobs += 1
        given.decisions += 1
        job = DecisionJob(
            self._jobs, given.words, frame, tuple(self._frames), tuple(self._actions)
        )
        report = DecisionReport(
            frame=frame,
            instruction=given.number,
            instruction_text=given.words,
            prefetched=prefetched,
        )
        self.under_way = DecisionInProgress(job, now, report, prefetched)
        return job

    def has_been_for(self, now: float) -> float:
        """For how long the one under way has been, s; 0 when there is none."""
        return now - self.under_way.began if self.under_way is not None else 0.0

    def remember(self, jpeg: bytes, action: Action) -> None:
        """Take note of a frame that was decided, and of what the robot does then."""
        self._frames.append(jpeg)
        self._actions.append(action)

    def take_back(self) -> None:
        """Forget the last one, if there is any."""
        if self._actions:
            self._actions.pop()
            self._frames.pop()

    def forget(self) -> None:
        """Forget all that was decided: a new instruction begins."""
        self._frames.clear()
        self._actions.clear()

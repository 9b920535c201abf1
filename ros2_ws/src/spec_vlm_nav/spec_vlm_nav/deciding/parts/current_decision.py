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

"""The decision under way, an unverified one that is still open, and what earlier ones saw and did."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode, Verification
from spec_vlm_nav.deciding.parts.instruction import Instruction
from spec_vlm_nav.deciding.parts.interfaces import DecisionReport
from spec_vlm_nav.exploring.policy import ExplorationPolicy, Memory
from spec_vlm_nav.language.actions import Action, reasoning_of
from spec_vlm_nav.model.decider import DecisionJob, ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered, Reconciled

PAST_FRAMES = 256  # kept for prompts with history
PAST_ACTIONS = 16


@dataclass
class DecisionInProgress:
    """
    A running job and the worker's events for it so far.

    prefetched: begun before the motion's end; its action must wait for that end.
    action: the model's action, once it was acted on.
    """

    job: DecisionJob
    began: float
    report: DecisionReport
    prefetched: bool = False
    found: ActionFound | None = None
    answered: Answered | None = None
    action: Action | None = None

    def is_due(self, early_action: bool) -> bool:
        """Whether the robot may act on it now; early_action: act before the answer is complete."""
        ready = self.found is not None and (early_action or self.answered is not None)
        return ready and self.action is None

    def final_report(self, answer: ModelAnswer, code: ErrorCode, error: str) -> DecisionReport:
        """Return the report to publish; with code NONE, the code and error set before stay."""
        report = replace(
            self.report,
            answer=answer,
            reasoning=reasoning_of(answer.text),
            model_action=self.action.sentence if self.action else "",
        )
        return report if code is ErrorCode.NONE else replace(report, code=code, error=error)


class CurrentDecision:
    """
    The decision under way, if any, and the frames and actions of earlier ones.

    look_after: the next decision needs a frame received after this time, s.
    retry_at: earliest time of the next decision, s.
    """

    def __init__(self) -> None:
        self.under_way: DecisionInProgress | None = None
        self.look_after = 0.0
        self.retry_at = 0.0
        self._jobs = 0
        self._frames: deque[bytes] = deque(maxlen=PAST_FRAMES)
        self._actions: deque[Action] = deque(maxlen=PAST_ACTIONS)

    @property
    def prefetched(self) -> DecisionInProgress | None:
        """Return the decision under way if it is prefetched."""
        current = self.under_way
        return current if current is not None and current.prefetched else None

    @property
    def frame(self) -> Frame | None:
        """Return the frame of the decision under way."""
        return self.under_way.job.frame if self.under_way is not None else None

    def begin(self, given: Instruction, frame: Frame, now: float, prefetched: bool) -> DecisionJob:
        """Begin a decision; returns the job for the worker."""
        self._jobs += 1
        given.decisions += 1
        job = DecisionJob(self._jobs, given.words, frame, tuple(self._frames), tuple(self._actions))
        report = DecisionReport(
            frame=frame,
            instruction=given.number,
            instruction_text=given.words,
            prefetched=prefetched,
        )
        self.under_way = DecisionInProgress(job, now, report, prefetched)
        return job

    def has_been_for(self, now: float) -> float:
        """Return the age of the decision under way, s; 0 if there is none."""
        return now - self.under_way.began if self.under_way is not None else 0.0

    def remember(self, jpeg: bytes, action: Action) -> None:
        """Record the frame of a decision and its action, for prompts with history."""
        self._frames.append(jpeg)
        self._actions.append(action)

    def take_back(self, jpeg: bytes) -> None:
        """Remove the decision of this frame and all later ones, if it is still recorded."""
        if not any(frame is jpeg for frame in self._frames):
            return
        last = None
        while last is not jpeg:
            last = self._frames.pop()
            if self._actions:
                self._actions.pop()

    def forget(self) -> None:
        """Remove all recorded decisions: a new instruction begins."""
        self._frames.clear()
        self._actions.clear()


@dataclass(frozen=True)
class OpenDecision:
    """
    An unverified decision with the data to confirm it or roll it back.

    action: the draft model's action. jpeg: its frame, as it is remembered. policy, policy_before:
    the exploration policy that was used, and its memory before this decision. at: time of the
    decision, s.
    """

    job: int
    action: Action
    jpeg: bytes
    sequence: int
    report: DecisionReport
    policy: ExplorationPolicy
    policy_before: Memory
    at: float

    def told(self, verdict: Verification, event: Reconciled) -> DecisionReport:
        """Return the decision's report, updated with the target's answer, to publish again."""
        return replace(
            self.report,
            verification=verdict,
            answer=event.answer,
            reasoning=reasoning_of(event.answer.text),
            model_action=event.action.sentence if event.action is not None else "",
        )


class Unverified:
    """The open unverified decision, if there is one."""

    def __init__(self) -> None:
        self.decision: OpenDecision | None = None

    def take(self, job: int) -> OpenDecision | None:
        """Return and close the open decision if it belongs to this job."""
        if self.decision is None or self.decision.job != job:
            return None
        decision, self.decision = self.decision, None
        return decision

    def close(self) -> None:
        """Discard the open decision: the target will not be asked."""
        self.decision = None

    @property
    def says_stop(self) -> bool:
        """Whether the open decision is the draft model's STOP. Only a confirmed STOP ends the instruction."""
        return self.decision is not None and self.decision.action.is_stop

    def stop_waits_for(self, now: float) -> float:
        """Return how long an unverified STOP has waited for the target, s; 0 if there is none."""
        if self.decision is None or not self.says_stop:
            return 0.0
        return now - self.decision.at

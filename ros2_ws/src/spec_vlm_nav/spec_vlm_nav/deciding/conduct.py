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
What all of the navigator shares.

The robot's instruction and phase, and how a decision and an instruction end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import math

from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.deciding.bounds import Obstructions, Odometer
from spec_vlm_nav.deciding.decision import Answer, ErrorCode, Job, Report
from spec_vlm_nav.deciding.orders import (
    Errand,
    NavigatorConfig,
    Order,
    Outcome,
    Outputs,
    Phase,
    SUPERVISOR,
    View,
)
from spec_vlm_nav.deciding.rollback import OpenDecision
from spec_vlm_nav.deciding.setbacks import Setbacks
from spec_vlm_nav.language.actions import Action, reasoning_of
from spec_vlm_nav.language.exploration import ExplorationPolicy
from spec_vlm_nav.model.decider import LinkHealth
from spec_vlm_nav.model.worker import ActionFound, Answered
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.executor import NO_MOTION

BOUNDS = (ErrorCode.TIMEOUT, ErrorCode.TOO_MANY_DECISIONS, ErrorCode.TOO_FAR)
PAST_FRAMES = 256  # kept for prompts with history


@dataclass
class Thought:
    """The decision under way and what has come of it."""

    job: Job
    began: float
    report: Report
    ahead: bool = (
        False  # begun before the motion's end; nothing is done about it until that has come
    )
    found: ActionFound | None = None
    answered: Answered | None = None
    action: Action | None = None


class Conduct:
    """
    State of one robot's instruction.

    `Acting` adds what comes of decisions, `Navigator` what leads to them.
    """

    def __init__(
        self,
        outputs: Outputs,
        config: NavigatorConfig | None = None,
        policy: ExplorationPolicy | None = None,
        keep_frames: int = PAST_FRAMES,
    ) -> None:
        self.config = config or NavigatorConfig()
        self.policy = policy or ExplorationPolicy()
        self.phase = Phase.IDLE
        self.camera = CameraWatch()
        self.setbacks = Setbacks(outputs.log)
        self.number = 0  # of the instruction
        self.model_is_ready = True  # False: it is still being loaded
        self._out = outputs
        self._errand = Errand(0, '', -math.inf)
        self._jobs = 0
        self._look_after = 0.0
        self._retry_at = 0.0
        self._thought: Thought | None = None
        self._sequence = 0  # of the motion under way
        self._unverified_motion = False
        self._settling_since: float | None = None
        self._give_up_at = 0.0
        self._silent_at = 0.0
        self._contact = False
        self._asked = NO_MOTION  # of the motion under way
        self._estopped_by = ''  # "": the emergency stop is not latched
        self._odometer = Odometer()
        self._obstructions = Obstructions()
        self._past: deque[bytes] = deque(maxlen=max(1, keep_frames))
        self._actions: deque[Action] = deque(maxlen=16)
        self._link = LinkHealth.UNKNOWN
        self._open: OpenDecision | None = None
        self._view = View(Phase.IDLE)

    @property
    def view(self) -> View:
        """Return what can be told of the instruction under way."""
        return replace(self._view, phase=self.phase, decisions=self._errand.decisions)

    @property
    def _stop_is_open(self) -> bool:
        """
        Whether the draft model alone said that the instruction is done.

        The target must say so, too.
        """
        return self._open is not None and self._open.action.is_stop

    def _camera_is_stale(self, now: float) -> bool:
        if self.camera.frame is None:
            return now - self._look_after > self.config.camera_timeout_s
        return self.camera.age(now) > self.config.camera_timeout_s

    def _look(self, after: float, retry_at: float) -> None:
        self.phase, self._look_after, self._retry_at = Phase.LOOKING, after, retry_at
        self._settling_since = None

    def _finish(
        self, thought: Thought, answer: Answer, code: ErrorCode = ErrorCode.NONE, error: str = ''
    ) -> None:
        """Publish what a decision cost; it is over."""
        self._thought = None
        report = replace(
            thought.report,
            answer=answer,
            reasoning=reasoning_of(answer.text),
            model_action=thought.action.sentence if thought.action else '',
        )
        if code is not ErrorCode.NONE:
            report = replace(report, code=code, error=error)
        self._out.report(report)

    def _abandon(self, code: ErrorCode, why: str) -> None:
        """Give up the decision under way and the one that is still open, if there are any."""
        if self._thought is not None or self._open is not None:
            self._out.cancel()
        self._open = None
        if self._thought is not None:
            self._finish(self._thought, Answer(), code, why)

    def _give_up(self, code: ErrorCode, message: str, now: float) -> None:
        """STOP because it makes no sense to go on."""
        self._out.log('error', f'gave up: {message}')
        if code in BOUNDS:
            self._out.report(self._blank(code, message))
        self._end(SUPERVISOR, message, code, now)

    def _end(
        self,
        source: str,
        text: str,
        code: ErrorCode,
        now: float,
        message: str = '',
        keep_thought: bool = False,
    ) -> int:
        """STOP: latches until the next instruction. Returns the sequence number."""
        if not keep_thought:
            self._abandon(ErrorCode.CANCELED, text)
        self._open = None
        sequence = self._stand(CommandKind.STOP, source, text)
        self._over(code, message or ('' if code is ErrorCode.NONE else text), now)
        return sequence

    def _over(self, code: ErrorCode, message: str, now: float) -> None:
        """Tell how the instruction ended, if one was under way."""
        was, self.phase = self.phase, Phase.IDLE
        if was is Phase.IDLE:
            return
        e = self._errand
        met = code is ErrorCode.NONE and e.hint.lower() in self._view.reasoning.lower()
        self._out.concluded(
            Outcome(
                e.number,
                code,
                message,
                e.decisions,
                e.motions,
                now - e.began,
                met,
                self._odometer.distance_m,
                e.words,
            )
        )

    def _stand(self, kind: CommandKind, source: str, text: str) -> int:
        frame = self._thought.job.frame if self._thought is not None else None
        return self._out.send(Order(kind, self.number, source, text, frame=frame))

    def _complain(self, code: ErrorCode, text: str, now: float) -> None:
        """Say it once, until it is over, and publish it."""
        if self.setbacks.complain(code, text, now):
            self._out.report(self._blank(code, text))

    def _blank(self, code: ErrorCode, text: str) -> Report:
        return Report(
            instruction=self.number, instruction_text=self._errand.words, code=code, error=text
        )

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
The deciding side as one object without ROS.

It turns what comes in into events; what they lead to says the table in `states.py`. One decision
at a time: look (wait for a frame newer than the end of the last motion), think, move. Whatever
goes wrong the robot is commanded to stand still first and the reason is given once. It never blocks:
decisions run elsewhere and come back as events; `now` is a steady clock in seconds. Every
instruction ends exactly once, with `NavigatorOutputs.concluded`.
"""

from __future__ import annotations

import math
from typing import Any

from spec_vlm_nav.camera.frame import Frame
from spec_vlm_nav.common.codes import ErrorCode, LinkState, MotionState
from spec_vlm_nav.common.errors import InstructionError
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.handlers.clocks import SHORTEST_STALL_S
from spec_vlm_nav.deciding.handlers.motions import GOING_ON
from spec_vlm_nav.deciding.handlers.operator import InstructionRefusal
from spec_vlm_nav.deciding.parts.current_decision import PAST_FRAMES
from spec_vlm_nav.deciding.parts.instruction import Instruction
from spec_vlm_nav.deciding.parts.interfaces import NavigatorConfig, NavigatorOutputs
from spec_vlm_nav.deciding.parts.situation import Situation
from spec_vlm_nav.deciding.states import NavigatorEvent, react
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.prompting import clean_instruction
from spec_vlm_nav.language.stop_words import is_stop
from spec_vlm_nav.model.worker import ActionFound, Answered, Failed, Reconciled
from spec_vlm_nav.model.worker import Event as DecisionEvent
from spec_vlm_nav.motion.command import OPERATOR_STOP

LOADING = "the model is still being loaded"
OLD_STOP_S = 0.2
EVENTS = {
    ActionFound: NavigatorEvent.ACTION_FOUND,
    Answered: NavigatorEvent.ANSWERED,
    Failed: NavigatorEvent.FAILED,
}


class Navigator(Situation):
    """
    The state machine of one robot: its situation, and what may happen to it.

    Every input method takes `now`. From outside, `config`, `policy` and `waits_for` may be set at
    any time, and `instruction.number` before the first instruction; the rest is only read.
    """

    def __init__(
        self,
        outputs: NavigatorOutputs,
        config: NavigatorConfig | None = None,
        policy: ExplorationPolicy | None = None,
        keep_frames: int = PAST_FRAMES,
    ) -> None:
        super().__init__(
            outputs, config or NavigatorConfig(), policy or ExplorationPolicy(), keep_frames
        )
        self._awake_at = -math.inf

    def _happens(self, event: NavigatorEvent, what: Any, now: float) -> None:
        react(self, event, what, now)

    # -- what the operator wants

    def on_instruction(
        self,
        text: str,
        now: float,
        allowance_s: float = 0.0,
        hint: str = "",
        stamp: float = math.inf,
    ) -> int:
        """
        Stand still, forget the old instruction and begin this one; returns its number.

        allowance_s: it may take so long, 0: as long as max_duration_s. hint: words that the last
        reasoning should hold. stamp: when it was given, s, by the clock of motion_node's stamps:
        an operator's stop after that is about it. A bad instruction ends at once, with the robot
        standing.
        """
        if is_stop(text):
            self.on_cancel(now)
            return self.instruction.number
        try:
            words = clean_instruction(text, self.config.max_instruction_chars)
        except InstructionError as error:
            refusal = InstructionRefusal(text, ErrorCode.INVALID_INPUT, str(error))
            self._happens(NavigatorEvent.REFUSAL, refusal, now)
            return self.instruction.number
        if is_stop(words):
            self.on_cancel(now)
            return self.instruction.number
        if self.estopped_by:
            why = f"{self.estopped_by} is latched: reset it first"
            self._happens(
                NavigatorEvent.REFUSAL, InstructionRefusal(words, ErrorCode.ESTOPPED, why), now
            )
            return self.instruction.number
        longest = min(d for d in (allowance_s, self.config.max_duration_s, math.inf) if d > 0)
        given = Instruction(self.instruction.number + 1, words, now, now + longest, hint, stamp)
        self._happens(NavigatorEvent.INSTRUCTION, given, now)
        return self.instruction.number

    def on_cancel(self, now: float, why: str = OPERATOR_STOP) -> None:
        """Stop and idle until the next instruction."""
        self._happens(NavigatorEvent.CANCEL, why, now)

    def wake(self, now: float) -> None:
        """Look at the clock before anything else: this process may have been stopped."""
        stalled_s, self._awake_at = now - self._awake_at, now
        if SHORTEST_STALL_S <= stalled_s < math.inf and self.waits_for != LOADING:
            self._happens(NavigatorEvent.STALLED, stalled_s, now)

    # -- what the robot perceives

    def on_frame(self, frame: Frame) -> None:
        """Keep the newest camera frame; decide from it if that is what is waited for."""
        if not self.camera.take(frame):
            return
        now = frame.received
        self.failures.recovered(ErrorCode.STALE_CAMERA, now, "camera frames arrive again")
        self._happens(NavigatorEvent.FRAME, frame, now)

    def on_link(self, link: LinkState, now: float, reason: str = "") -> None:
        """
        Take note of the link.

        Without a verifier nothing but a declared degraded mode moves the robot.
        """
        was, self.link = self.link, link
        if link is LinkState.UP and was is not LinkState.UP:
            self._happens(NavigatorEvent.LINK_BACK, reason, now)
        elif link is LinkState.LOST:
            self._happens(NavigatorEvent.LINK_LOST, reason, now)

    def on_estop(self, held_by: str, now: float) -> None:
        """Take note of the emergency stop, as motion_node reports it; "": it is not latched."""
        was, self.estopped_by = self.estopped_by, held_by
        if held_by:
            self._happens(NavigatorEvent.ESTOP, held_by, now)
        elif was:
            self._happens(NavigatorEvent.RESET, was, now)

    def on_status(self, status: Status, now: float) -> None:
        """
        Take note of what became of the motion under way, or of the operator's stop.

        The motion has to be of this node's session.
        """
        if status.state is MotionState.STOPPED and status.reason.startswith(OPERATOR_STOP):
            given = self.instruction.given
            # One that came before this instruction was given is about the one before.
            if status.since >= given.stamp or now - given.began > OLD_STOP_S:
                self._happens(NavigatorEvent.OPERATOR_STOP, OPERATOR_STOP, now)
            return
        if status.sequence != self.motion.sequence:
            return
        self.instruction.odometer.hear(status.sequence, status.done)
        goes_on = status.state in GOING_ON
        self._happens(
            NavigatorEvent.MOTION_GOES_ON if goes_on else NavigatorEvent.MOTION_ENDED, status, now
        )

    def on_event(self, event: DecisionEvent, now: float) -> None:
        """Take an event of the worker; those of abandoned jobs are ignored."""
        if isinstance(event, Reconciled):
            decision = self.unverified.decision
            if decision is not None and event.job == decision.job:
                is_same = decision.action == event.action
                self._happens(
                    NavigatorEvent.CONFIRMED if is_same else NavigatorEvent.REFUTED, event, now
                )
            return
        current = self.decision.under_way
        if current is not None and event.job == current.job.number:
            self._happens(EVENTS[type(event)], event, now)

    def tick(self, now: float) -> None:
        """Watch the clocks; call at 10 Hz or more."""
        if self.camera_is_stale(now):
            self._happens(NavigatorEvent.CAMERA_STALE, self.camera, now)
        if self.decision.has_been_for(now) > self.config.decision_timeout_s:
            self._happens(NavigatorEvent.DECISION_LATE, None, now)
        if self.motion.is_overdue(now):
            self._happens(NavigatorEvent.MOTION_SILENT, None, now)
        self._happens(NavigatorEvent.TICK, None, now)
        if self.camera.frame is not None:
            self._happens(NavigatorEvent.FRAME, self.camera.frame, now)

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
The navigator as one object without ROS.

It turns inputs into events; the table in `states.py` says how each state handles them. It makes one
decision at a time: look (wait for a frame newer than the end of the last motion), think, move. On
any fault it first commands the robot to stand still and then reports the reason once. It never
blocks: decisions run in a worker and come back as events. `now` is a steady clock in seconds.
Every instruction ends exactly once, with `NavigatorOutputs.concluded`.
"""

from __future__ import annotations

import math

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode, LinkState, MotionState
from spec_vlm_nav.common.errors import InstructionError
from spec_vlm_nav.common.status import GOING_ON, Status
from spec_vlm_nav.deciding.handlers.instructions import InstructionRefusal, SHORTEST_STALL_S
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
    The state machine of one robot: its situation and the inputs that change it.

    Callers may set `config`, `policy` and `waits_for` at any time, and `instruction.number` before
    the first instruction. Everything else is read-only for them.
    """

    def __init__(
        self,
        outputs: NavigatorOutputs,
        config: NavigatorConfig | None = None,
        policy: ExplorationPolicy | None = None,
    ) -> None:
        super().__init__(outputs, config or NavigatorConfig(), policy or ExplorationPolicy())
        self._awake_at = -math.inf

    # -- operator commands

    def on_instruction(
        self,
        text: str,
        now: float,
        allowance_s: float = 0.0,
        hint: str = "",
        stamp: float = math.inf,
    ) -> int:
        """
        Stand still, drop the old instruction and begin this one; returns its number.

        allowance_s: time limit in addition to max_duration_s; 0: none.
        hint: words expected in the last reasoning.
        stamp: when it was given, s, by the clock of motion_node's stamps. A later operator stop
        cancels it.
        An invalid instruction ends at once, with the robot standing.
        """
        if is_stop(text):
            self.on_cancel(now)
            return self.instruction.number
        try:
            words = clean_instruction(text, self.config.max_instruction_chars)
            if allowance_s < 0:
                raise InstructionError(f"time_allowance must be 0 s or more, got {allowance_s:g} s")
        except InstructionError as error:
            refusal = InstructionRefusal(text, ErrorCode.INVALID_INPUT, str(error))
            react(self, NavigatorEvent.REFUSAL, refusal, now)
            return self.instruction.number
        if is_stop(words):
            self.on_cancel(now)
            return self.instruction.number
        if self.estopped_by:
            why = f"{self.estopped_by} is latched: reset it first"
            react(self, NavigatorEvent.REFUSAL, InstructionRefusal(words, ErrorCode.ESTOPPED, why), now)
            return self.instruction.number
        longest = min(d for d in (allowance_s, self.config.max_duration_s, math.inf) if d > 0)
        given = Instruction(self.instruction.number + 1, words, now, now + longest, hint, stamp)
        react(self, NavigatorEvent.INSTRUCTION, given, now)
        return self.instruction.number

    def on_cancel(self, now: float, why: str = OPERATOR_STOP) -> None:
        """Stop and idle until the next instruction."""
        react(self, NavigatorEvent.CANCEL, why, now)

    def wake(self, now: float) -> None:
        """Detect a stall of this process; call it before any other input."""
        stalled_s, self._awake_at = now - self._awake_at, now
        if SHORTEST_STALL_S <= stalled_s < math.inf and self.waits_for != LOADING:
            react(self, NavigatorEvent.STALLED, stalled_s, now)

    # -- sensors, link and motion reports

    def on_frame(self, frame: Frame) -> None:
        """Keep the newest camera frame; decide from it if a decision is due."""
        if not self.camera.take(frame):
            return
        now = frame.received
        self.failures.recovered(ErrorCode.STALE_CAMERA, now, "camera frames arrive again")
        react(self, NavigatorEvent.FRAME, frame, now)

    def on_link(self, link: LinkState, now: float, reason: str = "") -> None:
        """Record the link's state. Without a verifier the robot moves only in a declared degraded mode."""
        was, self.link = self.link, link
        if link is LinkState.UP and was is not LinkState.UP:
            react(self, NavigatorEvent.LINK_BACK, reason, now)
        elif link is LinkState.LOST:
            react(self, NavigatorEvent.LINK_LOST, reason, now)

    def on_estop(self, held_by: str, now: float) -> None:
        """Record the emergency stop as reported by motion_node; held_by "": not latched."""
        was, self.estopped_by = self.estopped_by, held_by
        if held_by:
            react(self, NavigatorEvent.ESTOP, held_by, now)
        elif was:
            react(self, NavigatorEvent.RESET, was, now)

    def on_status(self, status: Status, now: float) -> None:
        """
        Handle a report about the motion under way or about the operator's stop.

        A report about a motion must belong to this node's session.
        """
        if status.state is MotionState.STOPPED and status.reason.startswith(OPERATOR_STOP):
            given = self.instruction.given
            # A stop from before this instruction was given concerns the previous one.
            if status.since >= given.stamp or now - given.began > OLD_STOP_S:
                react(self, NavigatorEvent.OPERATOR_STOP, OPERATOR_STOP, now)
            return
        if status.sequence != self.motion.sequence:
            return
        self.instruction.odometer.hear(status.sequence, status.done)
        goes_on = status.state in GOING_ON
        react(self, NavigatorEvent.MOTION_GOES_ON if goes_on else NavigatorEvent.MOTION_ENDED, status, now)

    def on_event(self, event: DecisionEvent, now: float) -> None:
        """Handle an event of the worker; events of abandoned jobs are ignored."""
        if isinstance(event, Reconciled):
            decision = self.unverified.decision
            if decision is not None and event.job == decision.job:
                is_same = decision.action == event.action
                react(self, NavigatorEvent.CONFIRMED if is_same else NavigatorEvent.REFUTED, event, now)
            return
        current = self.decision.under_way
        if current is not None and event.job == current.job.number:
            react(self, EVENTS[type(event)], event, now)

    def tick(self, now: float) -> None:
        """Check all timeouts; call at 10 Hz or more."""
        if self.camera_is_stale(now):
            react(self, NavigatorEvent.CAMERA_STALE, self.camera, now)
        if self.decision.has_been_for(now) > self.config.decision_timeout_s:
            react(self, NavigatorEvent.DECISION_LATE, None, now)
        if self.motion.is_overdue(now):
            react(self, NavigatorEvent.MOTION_SILENT, None, now)
        react(self, NavigatorEvent.TICK, None, now)
        if self.camera.frame is not None:
            react(self, NavigatorEvent.FRAME, self.camera.frame, now)

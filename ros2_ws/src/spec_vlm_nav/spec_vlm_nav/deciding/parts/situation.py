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
The navigator's parts together, and the steps that concern several of them.

Each part owns its state. The steps that make the robot stand, look again or end its instruction
are here, so that every handler does them in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from spec_vlm_nav.camera.watch import CameraWatch
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, LinkState, MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION
from spec_vlm_nav.common.status import Status, UNDER_WAY
from spec_vlm_nav.deciding.parts.current_decision import CurrentDecision, Unverified
from spec_vlm_nav.deciding.parts.instruction import CurrentInstruction
from spec_vlm_nav.deciding.parts.interfaces import (
    DecisionReport,
    Feedback,
    MotionRequest,
    NavigatorConfig,
    NavigatorOutputs,
    NavigatorPhase,
    SUPERVISOR,
)
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.model.decider import ModelAnswer
from spec_vlm_nav.motion.command import CommandKind


class Failures:
    """Lasting faults (camera, odometry, link) and counts of consecutive failures."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._since: dict[ErrorCode, float] = {}
        self._said: dict[ErrorCode, str] = {}
        self._in_a_row: dict[ErrorCode, int] = {}

    def warn_once(self, code: ErrorCode, text: str, now: float) -> bool:
        """Log a fault unless it was logged already; returns whether it was logged now."""
        if code in self._since:
            return False
        self._since[code], self._said[code] = now, text
        self._log("warn", text)
        return True

    def recovered(self, code: ErrorCode, now: float, text: str) -> None:
        """Record that a fault is over, and log it if the fault was logged."""
        since = self._since.pop(code, None)
        if since is not None:
            self._log("info", f"{text} (after {now - since:.1f} s)")

    def lasting(self, code: ErrorCode, now: float) -> float:
        """Return how long a fault has lasted, s; 0 if it is not present."""
        return now - self._since[code] if code in self._since else 0.0

    def longest(self, now: float) -> tuple[ErrorCode, str, float] | None:
        """Return the longest-lasting fault: its code, its text, and its duration, s."""
        code = min(self._since, key=self._since.__getitem__, default=None)
        return None if code is None else (code, self._said[code], self.lasting(code, now))

    def count(self, code: ErrorCode) -> int:
        """Count one more failure of this kind; returns the consecutive count."""
        self._in_a_row[code] = self._in_a_row.get(code, 0) + 1
        return self._in_a_row[code]

    def clear(self, code: ErrorCode) -> None:
        """Reset the count after a success."""
        self._in_a_row.pop(code, None)

    def begin(self, now: float, unknown: Collection[ErrorCode] = ()) -> None:
        """
        Reset the counts for a new instruction.

        Lasting faults stay, and their durations restart at `now`. unknown: faults that may have
        ended unnoticed.
        """
        self._in_a_row.clear()
        self._since = {code: now for code in self._since if code not in unknown}


class CurrentMotion:
    """
    The motion under way or, when none is, the last one.

    asked: the commanded motion. unverified: only the draft model decided it. settling_since: when
    the robot began to come to rest, s, or None. goes_on: whether motion_node's last report says
    that it carries out the motion.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.asked = NO_MOTION
        self.unverified = False
        self.settling_since: float | None = None
        self.goes_on = False
        self._ends_by = 0.0
        self._silent_from = 0.0
        self._met_something = False

    def ask(self, asked: Motion, unverified: bool) -> None:
        """Record a decided motion, whether or not it is carried out (dry_run)."""
        self.asked, self.unverified = asked, unverified

    def begin(self, sequence: int, ends_by: float, silent_from: float) -> None:
        """Expect reports about this motion; ends_by, silent_from: when they are overdue, s."""
        self.sequence, self.settling_since, self.goes_on = sequence, None, False
        self._ends_by, self._silent_from = ends_by, silent_from

    def heard(self, status: Status, now: float, silent_from: float) -> None:
        """Record a report; silent_from: when the next one is overdue, s."""
        self._silent_from, self.goes_on = silent_from, status.state in UNDER_WAY
        if status.state is MotionState.SETTLING and self.settling_since is None:
            self.settling_since = now

    def is_overdue(self, now: float) -> bool:
        """Whether its end or its next report is overdue."""
        return now > min(self._ends_by, self._silent_from)

    def ended(self, met_something: bool) -> None:
        """Record whether the motion ended at an obstacle."""
        self._met_something = met_something

    def forget_contact(self) -> None:
        """Discard the last motion's contact."""
        self._met_something = False

    def take_contact(self) -> bool:
        """Return whether the last motion ended at an obstacle; reading it clears it."""
        met, self._met_something = self._met_something, False
        return met


BOUNDS = (ErrorCode.TIMEOUT, ErrorCode.TOO_MANY_DECISIONS, ErrorCode.TOO_FAR)


class Situation:
    """The parts of one robot's navigator."""

    def __init__(
        self,
        outputs: NavigatorOutputs,
        config: NavigatorConfig,
        policy: ExplorationPolicy,
    ) -> None:
        self.out = outputs
        self.config = config
        self.policy = policy
        self.phase = NavigatorPhase.IDLE
        self.camera = CameraWatch()
        self.failures = Failures(outputs.log)
        self.instruction = CurrentInstruction()
        self.decision = CurrentDecision()
        self.motion = CurrentMotion()
        self.unverified = Unverified()
        self.last_feedback = Feedback(NavigatorPhase.IDLE)
        self.link = LinkState.UNKNOWN
        self.estopped_by = ""  # "": the emergency stop is not latched
        self.waits_for = ""  # why no decision may begin yet; "": none

    # -- conditions

    def camera_is_stale(self, now: float) -> bool:
        """Whether no trusted frame has arrived for camera_timeout_s."""
        if self.camera.frame is None:
            return now - self.decision.look_after > self.config.camera_timeout_s
        return self.camera.age(now) > self.config.camera_timeout_s

    def may_decide(self, now: float) -> bool:
        """Whether a decision may begin now, if there is a frame for it."""
        if self.waits_for:
            return False
        if self.link is LinkState.LOST and not self.config.is_degradable:
            return False
        due = now >= self.decision.retry_at and not self.unverified.says_stop
        return due and not self.camera_is_stale(now)

    @property
    def decisions_are_used_up(self) -> bool:
        """Whether the instruction has reached max_decisions."""
        return 0 < self.config.max_decisions <= self.instruction.given.decisions

    # -- steps

    def stand(self, kind: CommandKind, source: ActionSource, text: str) -> int:
        """Command the robot to stand; returns the command's sequence number."""
        number, frame = self.instruction.number, self.decision.frame
        return self.out.send(MotionRequest(kind, number, source, text, frame=frame))

    def look(self, after: float, retry_at: float) -> None:
        """Wait for a frame received after `after`, and decide at `retry_at` at the earliest."""
        self.phase = NavigatorPhase.LOOKING
        self.decision.look_after, self.decision.retry_at = after, retry_at
        self.motion.settling_since = None

    def finish(self, answer: ModelAnswer, code: ErrorCode = ErrorCode.NONE, error: str = "") -> None:
        """End the decision under way and publish its report."""
        current, self.decision.under_way = self.decision.under_way, None
        if current is not None:
            self.out.report(current.final_report(answer, code, error))

    def abandon(self, code: ErrorCode, why: str) -> None:
        """Give up the decision under way and the open unverified one, if there are any."""
        if self.decision.under_way is not None or self.unverified.decision is not None:
            self.out.cancel()
        self.unverified.close()
        self.finish(ModelAnswer(), code, why)

    def drop_prefetched(self, why: str) -> None:
        """Drop a prefetched decision."""
        if self.decision.prefetched is not None:
            self.instruction.given.decisions -= 1
            self.out.cancel(keep_open=True)
            self.finish(ModelAnswer(), ErrorCode.CANCELED, why)

    # -- end of an instruction

    def give_up(self, code: ErrorCode, message: str, now: float) -> None:
        """Send STOP and end the instruction with an error."""
        self.end(SUPERVISOR, message, code, now)
        self.out.log("error", f"gave up: {message}")
        if code in BOUNDS:
            self.out.report(self._without_decision(code, message))

    def end(self, source: ActionSource, text: str, code: ErrorCode, now: float, message: str = "") -> None:
        """Give up the decision under way, send STOP and end the instruction."""
        self.abandon(ErrorCode.CANCELED, text)
        self.stop(source, text, code, now, message)

    def stop(self, source: ActionSource, text: str, code: ErrorCode, now: float, message: str = "") -> int:
        """Send STOP and end the instruction; the decision under way goes on. Returns the sequence."""
        self.unverified.close()
        sequence = self.stand(CommandKind.STOP, source, text)
        self.conclude(code, message or ("" if code is ErrorCode.NONE else text), now)
        return sequence

    def conclude(self, code: ErrorCode, message: str, now: float) -> None:
        """Report how the instruction ended, if one was under way."""
        was, self.phase = self.phase, NavigatorPhase.IDLE
        if was is not NavigatorPhase.IDLE:
            reasoning = self.last_feedback.reasoning
            self.out.concluded(self.instruction.result(code, message, reasoning, now))

    # -- reports

    def warn_once(self, code: ErrorCode, text: str, now: float) -> None:
        """Log and publish a fault once, until it is over."""
        if self.failures.warn_once(code, text, now):
            self.out.report(self._without_decision(code, text))

    def _without_decision(self, code: ErrorCode, text: str) -> DecisionReport:
        return DecisionReport(
            instruction=self.instruction.number,
            instruction_text=self.instruction.given.words,
            code=code,
            error=text,
        )

    @property
    def told(self) -> Feedback:
        """Return the current feedback about the instruction."""
        decisions = self.instruction.given.decisions
        return replace(self.last_feedback, phase=self.phase, decisions=decisions)

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
What is done about a decision, from the worker's events to orders.

The action is ordered as soon as it is there, failures and roll-backs stand still.
"""

from __future__ import annotations

from dataclasses import replace

from spec_vlm_nav.deciding.conduct import Conduct, Thought
from spec_vlm_nav.deciding.decision import Answer, ErrorCode, Verification
from spec_vlm_nav.deciding.orders import Order, Phase, SUPERVISOR, View
from spec_vlm_nav.deciding.rollback import OpenDecision
from spec_vlm_nav.language.actions import ahead_clear, reasoning_of, sees_target, STOP
from spec_vlm_nav.language.exploration import ActionSource, Move
from spec_vlm_nav.model.worker import ActionFound, Answered, Event, Failed, Reconciled
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.executor import Motion, NO_MOTION

SLOW_FACTOR = 2.0  # unverified motions are slower: they get so much longer


class Acting(Conduct):
    """From the worker's events to orders and reports."""

    def on_event(self, event: Event, now: float) -> None:
        """Take an event of the worker; those of abandoned jobs are ignored."""
        if isinstance(event, Reconciled):
            self._reconciled(event, now)
            return
        thought = self._thought
        if thought is None or event.job != thought.job.number:
            return
        if isinstance(event, Failed):
            self._failed(thought, event, now)
            return
        if isinstance(event, ActionFound):
            thought.found = event
        else:
            thought.answered = event
        self._advance(thought, now)

    def _advance(self, thought: Thought, now: float) -> None:
        """
        Do what is due.

        That is the action once its sentence is there (or the answer complete), and the
        bookkeeping.
        """
        if thought.ahead:
            return
        due = thought.found is not None and (
            self.config.early_action or thought.answered is not None
        )
        if due and thought.action is None and thought.found is not None:
            self._act(thought, thought.found, now)
        if thought.answered is not None:
            self._answered(thought, thought.answered, now)

    def _act(self, thought: Thought, event: ActionFound, now: float) -> None:
        """Move now that the action sentence is there, whatever else the model may still say."""
        thought.action = event.action
        if (objection := self._objection(event, now)) is not None:
            code, error = objection
            thought.report = replace(thought.report, code=code, error=error)
            self._look(now, now)
            return
        before = self.policy.state
        if event.action.is_stop:
            move = Move(STOP, ActionSource.MODEL)
        else:
            move = self.policy.decide(
                event.action,
                sees_target(event.text),
                self._contact,
                ahead_clear(event.text),
            )
        self._contact = False
        self._past.append(event.jpeg)
        self._actions.append(move.action)
        said = Verification.UNVERIFIED if event.unverified else Verification.VERIFIED
        thought.report = replace(
            thought.report,
            action=move.action.short,
            source=move.source.value,
            rule=move.rule,
            verification=said,
            decision_ms=(event.at - thought.began) * 1e3,
            camera_to_action_ms=(now - thought.job.frame.received) * 1e3,
        )
        words = move.action.sentence or move.action.short
        self._view = View(
            self.phase,
            reasoning_of(event.text),
            words,
            event.unverified,
            NO_MOTION,
            thought.report.decision_ms,
        )
        sequence = self._carry_out(thought, move, event.unverified, now)
        thought.report = replace(thought.report, sequence=sequence)
        if event.unverified:
            self._open = OpenDecision(
                thought.job.number, event.action, sequence, thought.report, before, now
            )
            self._out.log('warn', f'UNVERIFIED, the draft model alone: {words}')
        self._out.spoke(reasoning_of(event.text), words, event.unverified)

    def _objection(self, event: ActionFound, now: float) -> tuple[ErrorCode, str] | None:
        """Why nothing may be done about an action although it was found."""
        if self._camera_is_stale(now):
            return ErrorCode.STALE_CAMERA, 'camera went stale while thinking'
        if event.unverified and not self.config.is_degradable:
            return (
                ErrorCode.LINK_LOST,
                'only the draft model says so, and it may no longer decide alone',
            )
        return None

    def _carry_out(self, thought: Thought, move: Move, unverified: bool, now: float) -> int:
        frame, action = thought.job.frame, move.action
        if action.is_stop and unverified:
            sequence = self._stand(CommandKind.HOLD, move.source.value, action.sentence)
            self._look(now, now)
            return sequence
        if action.is_stop:
            return self._end(
                move.source.value, action.sentence, ErrorCode.NONE, now, keep_thought=True
            )
        motion = Motion(action.distance_m, action.angle_rad)
        deadline = self.config.motion_deadline_s * (SLOW_FACTOR if unverified else 1)
        order = Order(
            CommandKind.MOVE,
            self.number,
            move.source.value,
            action.short,
            motion,
            frame,
            deadline,
            unverified,
        )
        sequence = self._out.send(order)
        self._asked = motion
        self._errand.motions += 1
        self._unverified_motion = unverified
        if self.config.dry_run:
            self._look(now, now)
            return sequence
        self.phase, self._sequence, self._settling_since = Phase.MOVING, sequence, None
        self._give_up_at = now + deadline + self.config.status_grace_s
        self._silent_at = now + self.config.status_timeout_s
        return sequence

    def _answered(self, thought: Thought, event: Answered, now: float) -> None:
        answer = event.answer
        if not event.unverified:
            self.setbacks.recovered(ErrorCode.LINK_LOST, now, 'the verifier answers again')
        self.setbacks.recovered(ErrorCode.TIMEOUT, now, 'answers come in time again')
        self.setbacks.recovered(ErrorCode.INVALID_INPUT, now, 'usable camera frames again')
        self.setbacks.recovered(ErrorCode.INTERNAL, now, 'decisions work again')
        if thought.action is not None:
            for code in (
                ErrorCode.PARSE_FAILED,
                ErrorCode.INTERNAL,
                ErrorCode.LINK_LOST,
                ErrorCode.TIMEOUT,
            ):
                self.setbacks.clear(code)
            self._say_late_reasoning(answer, event.unverified)
            self._finish(thought, answer)
            return
        self._stand(CommandKind.HOLD, SUPERVISOR, 'no action in the answer')
        self._finish(
            thought,
            answer,
            ErrorCode.PARSE_FAILED,
            'the answer holds no action sentence: not moving',
        )
        self._out.log('warn', f'no action in the answer, not moving: {answer.text[:120]!r}')
        if self.setbacks.count(ErrorCode.PARSE_FAILED) >= self.config.parse_failure_limit:
            self._give_up(
                ErrorCode.PARSE_FAILED, 'too many answers in a row without an action', now
            )
            return
        self._look(now, now)

    def _say_late_reasoning(self, answer: Answer, unverified: bool) -> None:
        """Where the action comes first, what stands behind it is the reasoning."""
        reasoning = reasoning_of(answer.text)
        if reasoning and not self._view.reasoning:
            self._view = replace(self._view, reasoning=reasoning)
            self._out.spoke(reasoning, '', unverified)

    def _failed(self, thought: Thought, failed: Failed, now: float) -> None:
        if thought.ahead:  # the motion goes on, and the next try is made after it
            self._finish(thought, failed.answer, failed.code, failed.message)
            return
        # STOP is out already, or whoever canceled has seen to the robot; else it stands before
        # anything is told.
        seen_to = self.phase is Phase.IDLE or failed.code is ErrorCode.CANCELED
        if not seen_to:
            self._stand(CommandKind.HOLD, SUPERVISOR, failed.code.name)
        self._finish(thought, failed.answer, failed.code, failed.message)
        if self._open is not None and self._open.job == thought.job.number:
            self._open = None  # there is no whole answer that could be verified
        if seen_to:
            return
        count = self.setbacks.count(failed.code)
        pause = min(self.config.first_retry_s * 2 ** (count - 1), self.config.last_retry_s)
        self.setbacks.complain(
            failed.code, f'{failed.message}; the robot stands still and tries again', now
        )
        if failed.code is ErrorCode.INTERNAL and count >= self.config.internal_failure_limit:
            self._give_up(
                ErrorCode.INTERNAL, f'too many internal errors in a row: {failed.message}', now
            )
            return
        lasting = self.setbacks.lasting(failed.code, now)
        if failed.code is not ErrorCode.LINK_LOST and 0 < self.config.patience_s < lasting:
            self._give_up(failed.code, f'no answer for {lasting:.0f} s: {failed.message}', now)
            return
        self._look(now, now + pause)

    def _reconciled(self, event: Reconciled, now: float) -> None:
        """Take the target's word on the last unverified decision."""
        decision = self._open
        if decision is None or event.job != decision.job:
            return
        self._open = None
        if decision.action == event.action:
            self._out.report(decision.told(Verification.CONFIRMED, event))
            self._out.log('info', f'confirmed by the verifier: {decision.action.short}')
            self._unverified_motion = (
                self._unverified_motion and self._sequence != decision.sequence
            )
            if decision.action.is_stop:
                self._end(ActionSource.MODEL.value, decision.action.sentence, ErrorCode.NONE, now)
            return
        self._abandon(ErrorCode.CANCELED, 'rolled back')
        self._stand(CommandKind.HOLD, SUPERVISOR, 'rolled back')
        if self._actions:
            self._actions.pop()
            self._past.pop()
        self.policy.state = decision.policy_before
        self._out.report(decision.told(Verification.ROLLED_BACK, event))
        instead = event.action.short if event.action is not None else 'no action'
        self._out.log('warn', f'rolled back {decision.action.short}: the verifier says {instead}')
        self._look(now, now)

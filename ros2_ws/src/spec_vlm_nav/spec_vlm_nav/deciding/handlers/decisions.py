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
Handlers for the worker's events.

An action is carried out as soon as it is found; after failures and roll-backs the robot stands.
"""

from __future__ import annotations

from dataclasses import replace

from spec_vlm_nav.camera.images import pixels
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, Verification
from spec_vlm_nav.common.errors import FrameError
from spec_vlm_nav.common.geometry import Motion, NO_MOTION
from spec_vlm_nav.deciding.parts.current_decision import DecisionInProgress, OpenDecision
from spec_vlm_nav.deciding.parts.interfaces import Feedback, MotionRequest, NavigatorPhase, SUPERVISOR
from spec_vlm_nav.deciding.parts.situation import Situation
from spec_vlm_nav.exploring.floor_reading import FloorPicture
from spec_vlm_nav.exploring.moves import Move, Observation
from spec_vlm_nav.language.actions import reasoning_of, STOP
from spec_vlm_nav.model.decider import ModelAnswer
from spec_vlm_nav.model.worker import ActionFound, Answered, Failed, Reconciled
from spec_vlm_nav.motion.command import CommandKind

SLOW_FACTOR = 2.0  # unverified motions are slower: their deadline is this many times longer
WORKS_AGAIN = {  # faults that a complete answer clears
    ErrorCode.TIMEOUT: "answers come in time again",
    ErrorCode.INVALID_INPUT: "usable camera frames again",
    ErrorCode.INTERNAL: "decisions work again",
}
NOT_IN_A_ROW = (  # failures whose count an answer with an action resets
    ErrorCode.PARSE_FAILED,
    ErrorCode.INTERNAL,
    ErrorCode.LINK_LOST,
    ErrorCode.TIMEOUT,
)


# -- the handlers that the table names


def take_action(s: Situation, event: ActionFound, now: float) -> None:
    """Carry the action out; wait if it was prefetched or the whole answer is required."""
    if (current := s.decision.under_way) is not None:
        current.found = event
        advance(s, current, now)


def take_answer(s: Situation, event: Answered, now: float) -> None:
    """Publish the decision's measurements; an answer without an action counts as a failure."""
    if (current := s.decision.under_way) is not None:
        current.answered = event
        advance(s, current, now)


def take_failure(s: Situation, failed: Failed, now: float) -> None:
    """Stand still and try again later; give up after too many failures or too long."""
    if s.decision.prefetched is not None:  # the motion goes on; the next try is made after it
        s.finish(failed.answer, failed.code, failed.message)
        return
    # On a cancel the caller has stopped the robot; otherwise it is stopped before any report.
    was_canceled = failed.code is ErrorCode.CANCELED
    if not was_canceled:
        s.stand(CommandKind.HOLD, SUPERVISOR, failed.code.name)
    note_failure(s, failed, now)
    if not was_canceled:
        _try_again(s, failed, now)


def note_failure(s: Situation, failed: Failed, now: float) -> None:
    """Publish the failed decision's measurements and close it. STOP or HOLD was sent before."""
    if (current := s.decision.under_way) is not None:
        s.finish(failed.answer, failed.code, failed.message)
        s.unverified.take(current.job.number)


def time_out(s: Situation, _: None, now: float) -> None:
    """Cancel the decision that takes too long and treat it as failed."""
    text = f"no answer within {s.config.decision_timeout_s:g} s"
    s.out.cancel()
    take_failure(s, Failed(0, ErrorCode.TIMEOUT, text, ModelAnswer()), now)


def confirm(s: Situation, event: Reconciled, now: float) -> None:
    """Report that the target confirms the draft model's action; a STOP ends the instruction."""
    decision = s.unverified.take(event.job)
    if decision is None:
        return
    s.out.report(decision.told(Verification.CONFIRMED, event))
    s.out.log("info", f"confirmed by the verifier: {decision.action.short}")
    if s.motion.sequence == decision.sequence:
        s.motion.unverified = False
    if decision.action.is_stop:
        s.end(ActionSource.MODEL, decision.action.sentence, ErrorCode.NONE, now)


def roll_back(s: Situation, event: Reconciled, now: float) -> None:
    """Stand still, undo the draft model's action and all after it in the memory, and look again."""
    decision = s.unverified.take(event.job)
    if decision is None:
        return
    s.abandon(ErrorCode.CANCELED, "rolled back")
    s.stand(CommandKind.HOLD, SUPERVISOR, "rolled back")
    s.decision.take_back(decision.jpeg)
    if s.policy is decision.policy:  # the memory is of no use to another policy
        s.policy.state = decision.policy_before
    s.out.report(decision.told(Verification.ROLLED_BACK, event))
    instead = event.action.short if event.action is not None else "no action"
    s.out.log("warn", f"rolled back {decision.action.short}: the verifier says {instead}")
    s.look(now, now)


# -- an action


def advance(s: Situation, current: DecisionInProgress, now: float) -> None:
    """
    Act on the decision under way as far as possible.

    The action is carried out once its sentence is found (or the answer complete); a complete answer
    is recorded.
    """
    if current.prefetched:
        return
    if current.found is not None and current.is_due(s.config.early_action):
        _act(s, current, current.found, now)
    if current.answered is not None:
        _conclude(s, current, current.answered, now)


def _act(s: Situation, current: DecisionInProgress, event: ActionFound, now: float) -> None:
    """Carry out the found action; the rest of the answer may still be streaming."""
    current.action = event.action
    if (objection := _objection(s, event, now)) is not None:
        code, error = objection
        current.report = replace(current.report, code=code, error=error)
        s.look(now, now)
        return
    before = s.policy.state
    move = _choose(s, event)
    s.decision.remember(event.jpeg, move.action)
    current.report = replace(
        current.report,
        action=move.action.short,
        source=move.source,
        rule=move.rule,
        verification=Verification.UNVERIFIED if event.unverified else Verification.VERIFIED,
        decision_ms=(event.at - current.began) * 1e3,
        camera_to_action_ms=(now - current.job.frame.received) * 1e3,
    )
    reasoning = reasoning_of(event.text)
    words = move.action.sentence or move.action.short
    decision_ms = current.report.decision_ms
    s.last_feedback = Feedback(s.phase, reasoning, words, event.unverified, NO_MOTION, decision_ms)
    sequence = _carry_out(s, current, move, event.unverified, now)
    current.report = replace(current.report, sequence=sequence)
    if event.unverified:
        s.unverified.decision = OpenDecision(
            current.job.number, event.action, event.jpeg, sequence, current.report, s.policy, before, now
        )
        s.out.log("warn", f"UNVERIFIED, the draft model alone: {words}")
    s.out.spoke(reasoning, words, event.unverified)


def _objection(s: Situation, event: ActionFound, now: float) -> tuple[ErrorCode, str] | None:
    """Return why a found action must not be carried out, or None."""
    if s.camera_is_stale(now):
        return ErrorCode.STALE_CAMERA, "camera went stale while thinking"
    if event.unverified and not s.config.is_degradable:
        what = "only the draft model decided this, and it may no longer decide alone"
        return ErrorCode.LINK_LOST, what
    return None


def _choose(s: Situation, event: ActionFound) -> Move:
    """Return the model's action, or the one the exploration policy puts in its place."""
    contact = s.motion.take_contact()
    if event.action.is_stop:
        return Move(STOP, ActionSource.MODEL)
    place, look = s.instruction.odometer.place, _look(s, event.jpeg)
    return s.policy.decide(Observation.from_answer(event.text, event.action, contact, place, look))


def _look(s: Situation, jpeg: bytes) -> FloorPicture | None:
    """Return the picture of a decision, for a policy that reads the floor; else None."""
    if s.config.body is None or not s.policy.looks:
        return None
    try:
        return FloorPicture(pixels(jpeg), s.config.body)
    except FrameError:  # the policy then decides without the picture
        return None


def _carry_out(s: Situation, current: DecisionInProgress, move: Move, unverified: bool, now: float) -> int:
    """Send the motion command of a move; returns its sequence number."""
    action, source = move.action, move.source
    if action.is_stop and unverified:
        sequence = s.stand(CommandKind.HOLD, source, action.sentence)
        s.look(now, now)
        return sequence
    if action.is_stop:
        return s.stop(source, action.sentence, ErrorCode.NONE, now)
    asked = Motion(action.distance_m, action.angle_rad)
    deadline = s.config.motion_deadline_s * (SLOW_FACTOR if unverified else 1)
    sequence = s.out.send(
        MotionRequest(
            CommandKind.MOVE,
            s.instruction.number,
            source,
            action.short,
            asked,
            current.job.frame,
            deadline,
            unverified,
        )
    )
    s.instruction.given.motions += 1
    s.motion.ask(asked, unverified)
    if s.config.dry_run:
        s.look(now, now)
        return sequence
    s.phase = NavigatorPhase.MOVING
    ends_by = now + deadline + s.config.status_grace_s
    s.motion.begin(sequence, ends_by, now + s.config.status_timeout_s)
    return sequence


# -- complete answers and failures


def _conclude(s: Situation, current: DecisionInProgress, event: Answered, now: float) -> None:
    """Record a complete answer, with or without an action."""
    if not event.unverified:
        s.failures.recovered(ErrorCode.LINK_LOST, now, "the verifier answers again")
    for code, text in WORKS_AGAIN.items():
        s.failures.recovered(code, now, text)
    if current.action is not None:
        for code in NOT_IN_A_ROW:
            s.failures.clear(code)
        _say_late_reasoning(s, event.answer, event.unverified)
        s.finish(event.answer)
        return
    s.stand(CommandKind.HOLD, SUPERVISOR, "no action in the answer")
    what = "the answer holds no action sentence: not moving"
    s.finish(event.answer, ErrorCode.PARSE_FAILED, what)
    s.out.log("warn", f"no action in the answer, not moving: {event.answer.text[:120]!r}")
    if s.failures.count(ErrorCode.PARSE_FAILED) >= s.config.parse_failure_limit:
        what = "too many answers in a row without an action"
        s.give_up(ErrorCode.PARSE_FAILED, what, now)
        return
    s.look(now, now)


def _say_late_reasoning(s: Situation, answer: ModelAnswer, unverified: bool) -> None:
    """Publish reasoning that follows the action in the answer."""
    reasoning = reasoning_of(answer.text)
    if reasoning and not s.last_feedback.reasoning:
        s.last_feedback = replace(s.last_feedback, reasoning=reasoning)
        s.out.spoke(reasoning, "", unverified)


def _try_again(s: Situation, failed: Failed, now: float) -> None:
    """Look again after a pause that doubles each time, or give up."""
    code, message = failed.code, failed.message
    count = s.failures.count(code)
    pause = min(s.config.first_retry_s * 2 ** (count - 1), s.config.last_retry_s)
    s.failures.warn_once(code, f"{message}; the robot stands still and tries again", now)
    if code is ErrorCode.INTERNAL and count >= s.config.internal_failure_limit:
        s.give_up(code, f"too many internal errors in a row: {message}", now)
        return
    lasting = s.failures.lasting(code, now)
    if code is not ErrorCode.LINK_LOST and 0 < s.config.patience_s < lasting:
        s.give_up(code, f"no answer for {lasting:.0f} s: {message}", now)
        return
    s.look(now, now + pause)

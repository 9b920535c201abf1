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

"""Handlers for an instruction: the operator's commands, its limits, and stalls of this process."""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.handlers.inputs import BACK_WITH_MOTION, NO_FRAMES
from spec_vlm_nav.deciding.parts.instruction import Instruction
from spec_vlm_nav.deciding.parts.interfaces import (
    DecisionReport,
    Feedback,
    NavigationResult,
    NavigatorPhase,
    SUPERVISOR,
)
from spec_vlm_nav.deciding.parts.situation import Situation
from spec_vlm_nav.motion.command import CommandKind

SHORTEST_STALL_S = 1.0  # between two of the navigator's inputs
LONGEST_STALL_S = 2.0
QUEUED_S = 0.3
MOST_OF_IT = 0.5  # share of an instruction's time after which a fault counts as the cause of a time-out

GONE = {
    ErrorCode.STALE_CAMERA: NO_FRAMES,
    ErrorCode.STALE_ODOM: "no odometry that can be trusted",
    ErrorCode.LINK_LOST: "the verifier was not heard",
    ErrorCode.STALE_SENSOR: "the collision sensor was blind",
    ErrorCode.NOT_READY: "the robot could not move",
}


@dataclass(frozen=True)
class InstructionRefusal:
    """A refused instruction and the reason."""

    text: str
    code: ErrorCode
    why: str


def begin(s: Situation, given: Instruction, now: float) -> None:
    """Stand still, end the previous instruction, and look for a frame to decide from."""
    s.abandon(ErrorCode.CANCELED, "a new instruction arrived")
    s.instruction.number = given.number
    s.stand(CommandKind.HOLD, SUPERVISOR, "new instruction")
    s.conclude(ErrorCode.CANCELED, "another instruction arrived", now)
    s.instruction.begin(given)
    s.policy.reset()
    s.failures.begin(now, BACK_WITH_MOTION)
    s.decision.forget()
    s.motion.forget_contact()
    s.last_feedback = Feedback(NavigatorPhase.LOOKING)
    s.look(now, now)
    s.out.log("info", f"instruction {given.number}: {given.words}")


def turn_down(s: Situation, refusal: InstructionRefusal, now: float) -> None:
    """End the previous instruction and report why the new one is refused."""
    s.end(SUPERVISOR, "stop", ErrorCode.CANCELED, now, "another instruction arrived")
    s.instruction.number += 1
    number, code, why = s.instruction.number, refusal.code, refusal.why
    s.out.log("error", why)
    s.out.report(DecisionReport(instruction=number, code=code, error=why))
    shown = refusal.text[: s.config.max_instruction_chars]
    s.out.concluded(NavigationResult(number, code, why, words=shown))


def cancel(s: Situation, why: str, now: float) -> None:
    """Stop and idle until the next instruction."""
    s.abandon(ErrorCode.CANCELED, why)
    s.end(SUPERVISOR, "stop", ErrorCode.CANCELED, now, why)
    s.out.log("info", f"{why}; waiting for the next instruction")


def end_estopped(s: Situation, held_by: str, now: float) -> None:
    """Give the instruction up: the emergency stop is latched."""
    s.give_up(ErrorCode.ESTOPPED, held_by, now)


def note_reset(s: Situation, held_by: str, now: float) -> None:
    """Log that the emergency stop was reset."""
    s.out.log("info", "the emergency stop was reset")


def mind_stall(s: Situation, stalled_s: float, now: float) -> None:
    """
    Drop decisions made before this process stalled; after a long stall, end the instruction.

    A decision about an old scene must not move the robot, and after minutes the robot must not move
    unasked. Frames queued during the stall have arrived by `look_after` and are not used.
    """
    if stalled_s >= LONGEST_STALL_S:
        text = f"vlm_nav_node stalled for {stalled_s:.1f} s (stopped, or no CPU time)"
        s.give_up(ErrorCode.INTERNAL, text, now)
        return
    s.abandon(ErrorCode.CANCELED, f"vlm_nav_node stalled for {stalled_s:.1f} s")
    s.stand(CommandKind.HOLD, SUPERVISOR, "vlm_nav_node stalled")
    s.look(now + QUEUED_S, now)


def _run_out(s: Situation, now: float) -> None:
    """End an instruction whose time is over; report the fault that lasted longest as the reason."""
    elapsed_s = now - s.instruction.given.began
    text, trouble = f"not done within {elapsed_s:.1f} s", s.failures.longest(now)
    if s.waits_for:
        s.give_up(ErrorCode.NOT_READY, f"{text}: {s.waits_for}", now)
    elif trouble is not None and trouble[2] >= MOST_OF_IT * elapsed_s:
        code, why, lasting_s = trouble
        s.give_up(code, f"{text}: for {lasting_s:.1f} s {why}", now)
    else:
        s.give_up(ErrorCode.TIMEOUT, text, now)


def mind_bounds(s: Situation, _: None, now: float) -> None:
    """Give up an instruction that exceeds its time or distance, or whose inputs were lost for long."""
    given, gone_m = s.instruction.given, s.instruction.odometer.distance_m
    patience, goes_on = s.config.patience_s, s.phase is NavigatorPhase.MOVING and s.motion.goes_on
    if now >= given.ends_at:
        _run_out(s, now)
        return
    if 0 < s.config.max_distance_m <= gone_m:
        text = f"{gone_m:.1f} m were travelled without getting there"
        s.give_up(ErrorCode.TOO_FAR, text, now)
        return
    for code, what in GONE.items():
        if goes_on and code in BACK_WITH_MOTION:
            continue  # motion_node would not move without it
        waits = code is not ErrorCode.LINK_LOST or s.config.on_link_loss == "stop"
        lasting = s.failures.lasting(code, now)
        if waits and 0 < patience < lasting:
            s.give_up(code, f"{what} for {lasting:.0f} s", now)
            return
    lasting = s.unverified.stop_waits_for(now)
    if 0 < patience < lasting:
        what = "the draft model says that it is done, and the verifier did not answer"
        s.give_up(ErrorCode.LINK_LOST, f"{what} for {lasting:.0f} s", now)

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

"""Handlers for the operator's commands: instruction, cancel, emergency stop and reset."""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.handlers.motions import BACK_WITH_MOTION
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

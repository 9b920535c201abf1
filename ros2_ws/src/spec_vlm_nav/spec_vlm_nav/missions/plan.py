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

"""A mission's plan: its steps, their bounds, and when it begins. Plain records."""

from __future__ import annotations

from dataclasses import dataclass
import enum

MOST_STEPS = 500  # with repetitions expanded


class StepKind(enum.Enum):
    """Kind of a step."""

    INSTRUCTION = "instruction"
    WAIT = "wait_s"
    TURN = "turn_deg"
    RETURN = "return"


class OnFailure(enum.Enum):
    """What follows after a step has failed, including its retries."""

    NEXT = "next"
    STOP = "stop"
    RETURN = "return"


class StartWhen(enum.Enum):
    """What a mission waits for before its first step."""

    NOW = "now"
    READY = "ready"  # vlm_nav_node and motion_node are heard, and no stop is latched
    SIGNAL = "signal"  # the order resume
    AFTER = "after_s"
    AT = "at"


@dataclass(frozen=True)
class Start:
    """When to begin. after_s: since receipt; at_minute: minutes since midnight, local time."""

    when: StartWhen = StartWhen.READY
    after_s: float = 0.0
    at_minute: int = 0


@dataclass(frozen=True)
class MissionStep:
    """
    One step.

    number: of a wait: seconds. Of a turn: degrees, left positive. Of a return: metres back along
    the driven path; 0: to where the mission began; negative: to where the previous step began.
    hint: words expected in the last reasoning; the result says whether they occurred.
    max_s, max_m: bounds of one attempt; 0: none (vlm_nav_node bounds an instruction, too).
    retries: attempts after the first.
    """

    kind: StepKind
    words: str = ""
    number: float = 0.0
    hint: str = ""
    max_s: float = 0.0
    max_m: float = 0.0
    retries: int = 0
    on_failure: OnFailure = OnFailure.STOP

    @property
    def shown(self) -> str:
        """Return the step in words."""
        if self.kind is StepKind.INSTRUCTION:
            return self.words
        if self.kind is StepKind.WAIT:
            return f"wait {self.number:g} s"
        if self.kind is StepKind.TURN:
            side = "left" if self.number > 0 else "right"
            return f"turn {side} {abs(self.number):g}°"
        if self.number > 0:
            return f"return {self.number:g} m along the path"
        return "return to the start" if self.number == 0 else "return to where the last step began"


PREVIOUS = -1.0


@dataclass(frozen=True)
class MissionPlan:
    """A mission. max_s: bound of its time without pauses; max_m: of its distance; 0: none."""

    name: str
    steps: tuple[MissionStep, ...]
    start: Start = Start()
    max_s: float = 0.0
    max_m: float = 0.0

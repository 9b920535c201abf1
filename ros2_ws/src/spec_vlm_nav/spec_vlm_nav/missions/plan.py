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

"""What a mission is: its steps, their bounds, when it begins. Plain records."""

from __future__ import annotations

from dataclasses import dataclass
import enum

MOST_STEPS = 500  # with repetitions written out


class StepKind(enum.Enum):
    """What a step does."""

    INSTRUCTION = "instruction"
    WAIT = "wait_s"
    TURN = "turn_deg"
    RETURN = "return"


class OnFailure(enum.Enum):
    """What follows when a step has failed, retries included."""

    NEXT = "next"
    STOP = "stop"
    RETURN = "return"


class StartWhen(enum.Enum):
    """What a mission waits for before its first step."""

    NOW = "now"
    READY = "ready"  # the deciding and the moving side are heard, and nothing is latched
    SIGNAL = "signal"  # an operator says resume
    AFTER = "after_s"
    AT = "at"


@dataclass(frozen=True)
class Start:
    """When to begin. after_s: since the mission was given; at: minutes since midnight, local."""

    when: StartWhen = StartWhen.READY
    after_s: float = 0.0
    at_minute: int = 0


@dataclass(frozen=True)
class MissionStep:
    """
    One step.

    number: wait: s, turn: degrees (left positive), return: metres back along the path driven, 0:
    all the way to where the mission began, negative: to where the step before began. max_s,
    max_m: bounds of one attempt, 0: none (an instruction has those of vlm_nav_node). retries:
    attempts after the first. hint: words that the last reasoning should hold; it is told whether.
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
    """A mission. max_s: of all its time but pauses; max_m: of all that is driven; 0: no bound."""

    name: str
    steps: tuple[MissionStep, ...]
    start: Start = Start()
    max_s: float = 0.0
    max_m: float = 0.0

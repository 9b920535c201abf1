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

"""The instruction under way: its text, limits and progress, and the report of its end."""

from __future__ import annotations

from dataclasses import dataclass
import math

from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.deciding.parts.bounds import Obstructions, Odometer
from spec_vlm_nav.deciding.parts.interfaces import NavigationResult


@dataclass
class Instruction:
    """One instruction being carried out. `number` counts all instructions, refused ones too."""

    number: int
    words: str
    began: float
    ends_at: float = math.inf
    hint: str = ""
    stamp: float = math.inf  # when it was given, s, by the clock of motion_node's stamps
    decisions: int = 0
    motions: int = 0
    refused_since: float = math.inf  # since when motion_node has carried out no motion, s

    def refused_for(self, now: float) -> float:
        """Record that a motion was not carried out; returns for how long none has been, s."""
        self.refused_since = min(self.refused_since, now)
        return now - self.refused_since


class CurrentInstruction:
    """
    The instruction under way or, when none is, the last one.

    `number` is the number of the newest instruction, including refused ones.
    """

    def __init__(self) -> None:
        self.number = 0
        self.given = Instruction(0, "", -math.inf)
        self.odometer = Odometer()
        self.obstructions = Obstructions()

    def begin(self, given: Instruction) -> None:
        """Replace the old instruction."""
        self.given = given
        self.odometer.restart()
        self.obstructions.restart()

    def result(self, code: ErrorCode, message: str, reasoning: str, now: float) -> NavigationResult:
        """Return the result to report; reasoning: the last one, searched for the hint."""
        given = self.given
        return NavigationResult(
            given.number,
            code,
            message,
            given.decisions,
            given.motions,
            now - given.began,
            code is ErrorCode.NONE and given.hint.lower() in reasoning.lower(),
            self.odometer.distance_m,
            given.words,
        )

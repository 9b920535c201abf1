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

"""A decision as it is published: what was decided, by whom, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field

from spec_vlm_nav.camera.frame import Frame
from spec_vlm_nav.common.codes import ErrorCode, Verification
from spec_vlm_nav.model.answers import ModelAnswer


@dataclass(frozen=True)
class DecisionReport:
    """One decision as it is published on ~/metrics."""

    frame: Frame | None = None
    instruction: int = 0
    instruction_text: str = ""
    sequence: int = 0  # of the motion command; 0: none was sent
    answer: ModelAnswer = field(default_factory=ModelAnswer)
    reasoning: str = ""
    model_action: str = ""
    action: str = ""
    source: str = "SUPERVISOR"
    rule: str = ""
    verification: Verification = Verification.VERIFIED
    prefetched: bool = False
    code: ErrorCode = ErrorCode.NONE
    error: str = ""
    decision_ms: float = 0.0
    camera_to_action_ms: float = 0.0

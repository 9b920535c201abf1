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

"""Data types of one decision: the job, the question, the answer and the failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.actions import Action
from specdec.edge.stats import RoundStats, Span

if TYPE_CHECKING:
    from specdec.models import Prompt
    from specdec.options import GenerationOptions


@dataclass(frozen=True)
class DecisionJob:
    """One decision to make. past: encoded frames of earlier decisions of this instruction, oldest first."""

    number: int
    instruction: str
    frame: Frame
    past: tuple[bytes, ...] = ()
    last_actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class ModelQuestion:
    """The exact prompt and options; verified: the answer's first ids, which the target has verified."""

    prompt: Prompt
    options: GenerationOptions
    verified: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelAnswer:
    """
    The model's answer and its measurements.

    timeline: what each side did, since the decision began. pieces: the text of each token.
    origins: the `course.Origin` of each token.
    joules: energy of the robot's computer during the decision; None: no sensor, or one was lost.
    open: the question that the target must still verify; None: all of the answer is verified.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    rounds: tuple[RoundStats, ...] = ()
    timeline: tuple[Span, ...] = ()
    prompt_bytes: int = 0
    prefill_ms: float = 0.0
    cloud_prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    joules: float | None = None
    pieces: tuple[str, ...] = ()
    origins: tuple[int, ...] = ()
    open: ModelQuestion | None = None  # noqa: A003

    @property
    def unverified(self) -> bool:
        """Whether only the draft model produced a part of the answer."""
        return self.open is not None


class DecisionFailed(NavigationError):
    """A decision without a complete answer: code, one-line reason, and the part of the answer there is."""

    def __init__(self, code: ErrorCode, message: str, answer: ModelAnswer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer or ModelAnswer()

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
One decision as the model sees it: what is asked, what came back, how it failed.

No behaviour, no ROS, no models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spec_vlm_nav.camera.frame import Frame
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.actions import Action
from specdec.edge.stats import RoundStats

if TYPE_CHECKING:
    from specdec.models import Prompt
    from specdec.options import GenerationOptions


@dataclass(frozen=True)
class DecisionJob:
    """
    One decision to make.

    `past` are the encoded frames of earlier decisions of this instruction, oldest first.
    """

    number: int
    instruction: str
    frame: Frame
    past: tuple[bytes, ...] = ()
    last_actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class TimelineSpan:
    """One bar of the timeline, milliseconds since the decision began."""

    lane: str
    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class ModelQuestion:
    """
    What a model was asked, exactly, and what of its answer is verified.

    `verified` holds the ids of the answer that the target has verified.
    """

    prompt: Prompt
    options: GenerationOptions
    verified: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelAnswer:
    """
    What the model said, and what it cost.

    open: what the target must still be asked; None: all of it is verified. pieces: the text of
    each token; origins: how each came (of `course.Origin`). joules: of the robot's computer
    during the decision; None: no sensor, or one was lost meanwhile.
    """

    text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    rounds: tuple[RoundStats, ...] = ()
    timeline: tuple[TimelineSpan, ...] = ()
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
        """Whether any of it is the draft model's word alone."""
        return self.open is not None


class DecisionFailed(NavigationError):
    """
    A decision that gave no complete answer.

    It holds why (code and one line), and what there was of the answer.
    """

    def __init__(self, code: ErrorCode, message: str, answer: ModelAnswer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer or ModelAnswer()

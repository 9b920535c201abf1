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
The data of a decision: what is asked, what came back, how it failed.

No behaviour, no ROS, no models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import enum
from typing import TYPE_CHECKING

from spec_vlm_nav.camera.images import RawImage
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.actions import Action

if TYPE_CHECKING:
    from specdec.models import Prompt
    from specdec.options import GenerationOptions


class ErrorCode(enum.Enum):
    """Numbers of DecisionMetrics.msg."""

    NONE = 0
    CANCELED = 1
    TIMEOUT = 2
    STALE_CAMERA = 3
    STALE_ODOM = 4
    LINK_LOST = 5
    PARSE_FAILED = 6
    COLLISION_AHEAD = 7
    INVALID_INPUT = 8
    INTERNAL = 9
    NO_RESPONSE = 10
    WRONG_RESPONSE = 11
    UNCOMMANDED_MOTION = 12
    BLOCKED = 13
    REFUSED = 14
    ESTOPPED = 15
    GEOFENCE = 16
    TOO_FAR = 17
    TOO_MANY_DECISIONS = 18
    STALE_SENSOR = 19
    NOT_READY = 20


class Verification(enum.Enum):
    """Numbers of DecisionMetrics.msg: who stands behind an action."""

    VERIFIED = 0
    UNVERIFIED = 1
    CONFIRMED = 2
    ROLLED_BACK = 3


@dataclass(frozen=True)
class Frame:
    """
    A camera message.

    The picture, its header stamp (seconds, nanoseconds), and its receive time (steady clock).
    """

    picture: bytes | RawImage
    stamp: tuple[int, int]
    received: float


@dataclass(frozen=True)
class Job:
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
class Round:
    """One draft and its verdict, measured."""

    drafted: int
    accepted: int
    uplink_bytes: int
    downlink_bytes: int
    draft_ms: float
    wait_ms: float
    verify_ms: float


@dataclass(frozen=True)
class Span:
    """One bar of the timeline, milliseconds since the decision began."""

    lane: str
    name: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Question:
    """
    What a model was asked, exactly, and what of its answer is verified.

    `verified` holds the ids of the answer that the target has verified.
    """

    prompt: Prompt
    options: GenerationOptions
    verified: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """
    What the model said, and what it cost.

    open: what the target must still be asked; None: all of it is verified.
    """

    text: str = ''
    token_ids: tuple[int, ...] = ()
    prompt_ids: tuple[int, ...] = ()
    rounds: tuple[Round, ...] = ()
    timeline: tuple[Span, ...] = ()
    prompt_bytes: int = 0
    prefill_ms: float = 0.0
    cloud_prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    open: Question | None = None  # noqa: A003

    @property
    def unverified(self) -> bool:
        """Whether any of it is the draft model's word alone."""
        return self.open is not None


class DecisionFailed(NavigationError):
    """
    A decision that gave no complete answer.

    It holds why (code and one line), and what there was of the answer.
    """

    def __init__(self, code: ErrorCode, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer or Answer()


@dataclass(frozen=True)
class Report:
    """One decision as it is published on ~/metrics."""

    frame: Frame | None = None
    instruction: int = 0
    instruction_text: str = ''
    sequence: int = 0  # of the motion command; 0: none was sent
    answer: Answer = field(default_factory=Answer)
    reasoning: str = ''
    model_action: str = ''
    action: str = ''
    source: str = 'SUPERVISOR'
    rule: str = ''
    verification: Verification = Verification.VERIFIED
    prefetched: bool = False
    code: ErrorCode = ErrorCode.NONE
    error: str = ''
    decision_ms: float = 0.0
    camera_to_action_ms: float = 0.0

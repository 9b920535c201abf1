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
Data types of the navigator's interface: configuration, requests, reports, results and outputs.

This module contains no behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import enum
from typing import Protocol

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ActionSource, ErrorCode, Verification
from spec_vlm_nav.common.geometry import Motion, NO_MOTION
from spec_vlm_nav.common.parameters import fixed
from spec_vlm_nav.exploring.floor_reading import RobotBody
from spec_vlm_nav.language.prompting import MAX_INSTRUCTION_CHARS
from spec_vlm_nav.model.decider import DecisionJob, DRAFT_ONLY, ModelAnswer
from spec_vlm_nav.motion.command import CommandKind

SUPERVISOR = ActionSource.SUPERVISOR


class NavigatorPhase(enum.Enum):
    """The navigator's state."""

    IDLE = "idle"  # no instruction, or it is over
    LOOKING = "looking"  # waiting for a frame that may be used
    THINKING = "thinking"
    MOVING = "moving"


@dataclass(frozen=True)
class NavigatorConfig:
    """Times and limits of the navigator; seconds."""

    camera_timeout_s: float = 1.0
    decision_timeout_s: float = 20.0
    motion_deadline_s: float = 4.0
    status_grace_s: float = fixed(1.0)  # after a motion's deadline, until motion_node counts as silent
    # motion_node reports a motion 10 times a second: after this silence it counts as gone
    status_timeout_s: float = fixed(1.0)
    # a frame counts as taken after the motion if received at least this long after its end
    settle_s: float = 0.05
    first_retry_s: float = fixed(0.5)
    last_retry_s: float = fixed(4.0)
    patience_s: float = 30.0  # camera, odometry or verifier gone for this long: give up; 0: never
    on_link_loss: str = "stop"  # stop | hold | draft_only_slow
    parse_failure_limit: int = 3
    internal_failure_limit: int = fixed(3)
    max_obstructions: int = 5  # without progress in between
    max_decisions: int = 300  # of an instruction; 0: no limit, as in the next two
    max_duration_s: float = 600.0
    max_distance_m: float = 100.0
    max_instruction_chars: int = MAX_INSTRUCTION_CHARS
    # move when the action sentence is verified, not when the answer is complete
    early_action: bool = True
    prefetch: bool = False  # decide the next action while the motion before it settles
    prefetch_tolerance: float = 3.0  # mean difference of the two frames, grey levels of 255
    dry_run: bool = False  # decide, but move nothing
    body: RobotBody | None = None  # for policies that read the floor; None: camera height unknown

    @property
    def is_degradable(self) -> bool:
        """Whether the draft model may decide alone."""
        return self.on_link_loss == DRAFT_ONLY


@dataclass(frozen=True)
class NavigationResult:
    """
    How an instruction ended; every instruction ends exactly once.

    The robot has been commanded to stand before it is reported.
    """

    instruction: int
    code: ErrorCode
    message: str
    decisions: int = 0
    motions: int = 0
    elapsed_s: float = 0.0
    hint_met: bool = False
    distance_m: float = 0.0
    words: str = ""  # the instruction itself


@dataclass(frozen=True)
class MotionRequest:
    """A motion command to send; the sender adds sequence number and session."""

    kind: CommandKind
    instruction: int
    source: ActionSource
    text: str
    motion: Motion = NO_MOTION
    frame: Frame | None = None
    deadline_s: float = 0.0
    unverified: bool = False


@dataclass(frozen=True)
class Feedback:
    """Progress of an instruction, reported while it is carried out."""

    phase: NavigatorPhase
    reasoning: str = ""
    action: str = ""
    unverified: bool = False
    left: Motion = NO_MOTION
    decision_ms: float = 0.0
    decisions: int = 0


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
    source: ActionSource = SUPERVISOR
    rule: str = ""
    verification: Verification = Verification.VERIFIED
    prefetched: bool = False
    code: ErrorCode = ErrorCode.NONE
    error: str = ""
    decision_ms: float = 0.0
    camera_to_action_ms: float = 0.0


class NavigatorOutputs(Protocol):
    """Outputs of the navigator."""

    def send(self, request: MotionRequest) -> int:
        """Send a motion command; returns its sequence number."""

    def begin(self, job: DecisionJob) -> None:
        """Hand a job to the worker."""

    def cancel(self, keep_open: bool = False) -> None:
        """Cancel the job under way; keep_open: still verify the open unverified answer."""

    def spoke(self, text: str, action: str, unverified: bool) -> None:
        """
        Publish the reasoning and the action of a decision.

        Each is "" if it does not exist or is not known yet.
        """

    def report(self, report: DecisionReport) -> None:
        """Publish the measurements of a decision."""

    def concluded(self, result: NavigationResult) -> None:
        """Report that an instruction is over."""

    def log(self, level: str, text: str) -> None:
        """Log a message for the operator; level: "info", "warn" or "error"."""

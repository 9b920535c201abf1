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
The decider's interface, its settings, and the data types of one decision.

A decider turns a job into verified text in one worker thread; another thread may set `cancel`.

The implementation is in `speculative`; only it and its helpers touch models and links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
import threading
from typing import Protocol, TYPE_CHECKING

from spec_vlm_nav.camera.images import Frame, PictureOptions
from spec_vlm_nav.common.codes import ErrorCode, LinkState
from spec_vlm_nav.common.errors import NavigationError
from spec_vlm_nav.language.actions import Action
from spec_vlm_nav.model.course import RoundHistory
from specdec.edge.stats import RoundStats, Span
from specdec.errors import OptionsError
from specdec.methods import get_method, Method, METHODS
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions

if TYPE_CHECKING:
    from specdec.models import Prompt

DRAFT_ONLY = "draft_only_slow"
ON_LINK_LOSS = ("stop", "hold", DRAFT_ONLY)
ACTIONS = "actions"
ANSWER_GRAMMARS = ("off", ACTIONS)
ANSWER_ORDERS = ("as_trained", "action_first")


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
    """
    The exact prompt and options for a model.

    verified: ids at the beginning of the answer that the target has verified.
    """

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
    """
    A decision without a complete answer.

    It carries the code, a one-line reason, and the part of the answer that exists.
    """

    def __init__(self, code: ErrorCode, message: str, answer: ModelAnswer | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer or ModelAnswer()


def _lacks(method: Method) -> str:
    if method.split:
        return "runs layers of the target on the edge, which the robot does not have"
    if method.lossy:
        return "is not exact when sampling, but the robot's answers must always be the target's"
    return ""


ROBOT_METHODS = tuple(name for name, method in METHODS.items() if not _lacks(method))
METHOD_FORM = f"one of {', '.join(ROBOT_METHODS)}; axes may follow, like sd+length:token:0.7"


def why_not_method(name: str) -> str:
    """Return why the robot cannot decode with this method, or ""."""
    if name.partition("+")[0] not in METHODS:
        return f"allowed is {METHOD_FORM}"
    try:
        lacks = _lacks(get_method(name))
    except OptionsError as error:
        return str(error)
    return f"it {lacks}" if lacks else ""


@dataclass(frozen=True)
class LinkReport:
    """
    State of the link to the verifier.

    rtt_ms: 0 before the first measurement. heard_at: when the verifier was last heard, steady
    clock, s. reason: one line if the link is LOST.
    """

    state: LinkState = LinkState.UNKNOWN
    rtt_ms: float = 0.0
    heard_at: float | None = None
    reason: str = ""


class OnText(Protocol):
    """Callback for a growing answer."""

    def __call__(self, text: str, jpeg: bytes, unverified: bool = False) -> None:
        """
        Receive the answer so far.

        text: all of the answer so far. jpeg: the frame. unverified: its end comes from the draft
        model alone.
        """


class Decider(Protocol):
    """
    Answers jobs.

    After construction the models are in memory, but there are no sockets or threads. A decider may
    be opened and closed repeatedly.

    open, decide, verify and close must be called from one thread at a time; the others from any.
    """

    def open(self, on_link_change: Callable[[LinkState], None]) -> None:  # noqa: A003
        """Start the link monitor. on_link_change: called from the monitor's thread; it must not block."""

    def decide(self, job: DecisionJob, cancel: threading.Event, on_text: OnText) -> ModelAnswer:
        """Answer a job. Raises DecisionFailed."""

    def verify(self, question: ModelQuestion, cancel: threading.Event) -> ModelAnswer:
        """Let the target answer a question that the draft model answered. Raises DecisionFailed."""

    def check(self, settings: DecoderSettings) -> None:
        """Raise ParameterError with the reason if `use` cannot accept these settings now."""

    def use(self, settings: DecoderSettings) -> None:
        """Apply changed settings (method, gamma, temperature, limits) from the next decision on."""

    def swap_draft(self, folder: str) -> None:
        """
        Load another draft model and use it from the next decision on.

        Blocks while loading; decisions continue meanwhile. Raises NavigationError or SpecdecError;
        the old model then stays.
        """

    def link(self) -> LinkReport:
        """Return the link's state; UNKNOWN while closed."""

    def so_far(self) -> Sequence[tuple[str, int]]:
        """
        Return the tokens of the answer under way, each with its `course.Origin`.

        Computed on request; tokens whose origin is not known yet are left out.
        """

    def course(self) -> RoundHistory:
        """Return a summary of the last rounds: the method's choice, the verifier's load."""

    def figures(self) -> Mapping[str, object]:
        """Return counts since construction, for diagnostics."""

    def close(self) -> None:
        """Release sockets and threads; the models stay in memory."""


@dataclass(frozen=True)
class DecoderSettings:
    """Settings of the decider; see the parameters of vlm_nav_node."""

    verifier: str = "tcp://127.0.0.1:5555"
    verifier_key: str = ""
    draft_model: str = "default_models/nav-draft"
    gguf: str = ModelOptions.gguf
    method: str = DecodingOptions.method
    gamma: int = DecodingOptions.gamma
    max_new_tokens: int = 96
    temperature: float = GenerationOptions.temperature
    seed: int = GenerationOptions.seed
    device: str = ModelOptions.device
    dtype: str = ModelOptions.dtype
    quantize: str = ModelOptions.quantize
    threads: int = 1
    connect_timeout_s: float = 1.0
    reply_timeout_s: float = 1.0
    link_timeout_s: float = 1.0
    resume_timeout_s: float = DecodingOptions.patience_s
    on_link_loss: str = "stop"
    energy_root: str = "/sys"
    prompt: str = "auto"
    answer_order: str = "as_trained"
    answer_grammar: str = "off"
    picture: PictureOptions = field(default_factory=PictureOptions)

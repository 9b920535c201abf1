"""What a decider is: it turns a job into verified text, in one worker thread; `cancel` is set from another.

Only the interface and its settings; the real one (`speculative`) is the only module that touches models and links.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from spec_vlm_nav.decision import Answer, Job
from spec_vlm_nav.images import PictureOptions

ON_LINK_LOSS = ("stop", "hold", "draft_only_slow")
ANSWER_ORDERS = ("as_trained", "action_first")


class LinkHealth(enum.Enum):
    """Numbers of Supervision.msg."""

    UNKNOWN = 0
    UP = 1
    LOST = 2


@dataclass(frozen=True)
class LinkReport:
    """What is known of the link to the verifier. rtt_ms: 0 before the first measurement; heard_at: steady clock, s."""

    health: LinkHealth = LinkHealth.UNKNOWN
    rtt_ms: float = 0.0
    heard_at: float | None = None


class Decider(Protocol):
    """Anything that can answer a job."""

    def decide(self, job: Job, cancel: threading.Event, on_text: Callable[[str, bytes], None]) -> Answer:
        """Answer; `on_text` gets the verified text so far and the encoded frame. Raises DecisionFailed."""
        ...

    def use(self, settings: DecoderSettings) -> None:
        """Take changed settings (gamma, temperature, limits) from the next decision on."""
        ...

    def close(self) -> None:
        """Let go of sockets."""
        ...


@dataclass(frozen=True)
class DecoderSettings:
    """What the real decider is told; see the parameters of vlm_nav_node."""

    verifier: str = "tcp://127.0.0.1:5555"
    draft_model: str = "default_models/nav-draft"
    method: str = "fsd"
    gamma: int = 4
    max_new_tokens: int = 96
    temperature: float = 0.0
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"
    quantize: str = "none"
    threads: int = 1
    connect_timeout_s: float = 1.0
    reply_timeout_s: float = 1.0
    link_timeout_s: float = 1.0
    resume_timeout_s: float = 2.0
    on_link_loss: str = "stop"
    prompt: str = "auto"
    answer_order: str = "as_trained"
    picture: PictureOptions = field(default_factory=PictureOptions)

# SPDX-License-Identifier: Apache-2.0
"""What one answer cost: rounds, bytes, times, and a timeline of who did what when. Data only, no logic of
decoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Lane = Literal["edge", "uplink", "cloud", "downlink"]
Finish = Literal["running", "eos", "length", "stop", "cancelled", "failed"]


@dataclass(frozen=True)
class Span:
    """Something that took time. Seconds are relative to the start of generate().

    Cloud spans come from the verifier's own measurements; their place between sending and receiving is taken
    to be the middle, so uplink and downlink show half the link time each. size: bytes of a message.
    """

    lane: Lane
    name: str
    start_s: float
    end_s: float
    size: int = 0


@dataclass(frozen=True)
class RoundStats:
    """One message of verified tokens. Bytes are everything ZeroMQ was handed; times in milliseconds.

    gained: verified tokens that were not known before, an EOS among them: accepted + 1, but where the next draft
    is on its way already, the token after this one may be its first. uplink_bytes: also of drafts on their way
    that this verdict made worthless; they are not among `drafted`.
    wait_ms: from handing over the draft to having the verdict; verify_ms: the forward in the cloud, inside
    it. draft_ms: what had to be drafted after the verdict before, where drafts are prepared for verdicts.
    ready: tokens of this draft that stood ready when the verdict before it came, and sync_ms: how long after that it
    left; None where nothing was prepared. hints: of early exits, while this draft was being judged.
    mode, why: what a controller chose for this round, and the reason it gave. queue_ms: waiting in the cloud, inside
    wait_ms; batch: sessions that shared the forward. took_ms: since the round before ended, and promised_ms: what a
    controller had promised for as many tokens; 0 where nobody did, and right after a change of plan.
    """

    drafted: int
    accepted: int
    uplink_bytes: int
    downlink_bytes: int
    draft_ms: float
    wait_ms: float
    verify_ms: float
    gained: int
    ready: int | None = None
    sync_ms: float | None = None
    hints: int = 0
    mode: str = ""
    why: str = ""
    queue_ms: float = 0.0
    batch: int = 1
    took_ms: float = 0.0
    promised_ms: float = 0.0


@dataclass(frozen=True)
class AnswerStats:
    """Measurements of one answer.

    Attributes:
        tokens: Verified token ids yielded, without EOS.
        rounds: One entry for each round.
        prompt_bytes: Size of the opening message with its images.
        prefill_ms: The edge's prefill; 0 without a draft model.
        cloud_prefill_ms: The verifier's prefill.
        ttft_ms: Time to the first verified token.
        total_ms: Time to the end of the answer.
        resumes: How often the answer went on after a lost link.
        draft_forwards: Forward passes of the draft model on the edge, without its prefill.
        predrafts: Verdicts that came while something was drafted ahead of them.
        predraft_hits: How many of these left the pre-draft standing.
        finish: How the answer ended.
        timeline: What each side did, as spans.
    """

    tokens: int = 0
    rounds: tuple[RoundStats, ...] = ()
    prompt_bytes: int = 0
    prefill_ms: float = 0.0
    cloud_prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    resumes: int = 0
    draft_forwards: int = 0
    predrafts: int = 0
    predraft_hits: int = 0
    finish: Finish = "running"
    timeline: tuple[Span, ...] = ()

    @property
    def tau(self) -> float:
        """Tokens gained a round, averaged over the rounds; 0 without rounds."""
        if not self.rounds:
            return 0.0
        return sum(r.gained for r in self.rounds) / len(self.rounds)

    @property
    def acceptance(self) -> float:
        """Share of draft tokens that were accepted; 0 where nothing was drafted."""
        drafted = sum(r.drafted for r in self.rounds)
        return sum(r.accepted for r in self.rounds) / drafted if drafted else 0.0

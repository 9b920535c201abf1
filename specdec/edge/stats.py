# SPDX-License-Identifier: Apache-2.0
"""Statistics of one answer: rounds, bytes, times, and a timeline of both sides. Data only, no decoding logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Lane = Literal["edge", "uplink", "cloud", "downlink"]
Finish = Literal["running", "eos", "length", "stop", "cancelled", "failed"]


@dataclass(frozen=True)
class Span:
    """An activity with a start and an end, in seconds since the start of generate().

    Cloud spans have the durations that the verifier measured. They are placed in the middle between sending and
    receiving, so uplink and downlink show half the link time each. size: bytes of a message.
    """

    lane: Lane
    name: str
    start_s: float
    end_s: float
    size: int = 0


@dataclass(frozen=True)
class RoundStats:
    """One message of verified tokens. Bytes count everything handed to ZeroMQ; times are in milliseconds.

    Attributes:
        drafted: Draft tokens that this message judged.
        accepted: How many of them were accepted.
        uplink_bytes: Bytes sent, including drafts in flight that this verdict invalidated; those drafts are not counted
            in `drafted`.
        downlink_bytes: Bytes received.
        draft_ms: Time spent drafting; with prepared drafts, only the part after the previous verdict.
        wait_ms: From sending the draft to receiving the verdict.
        verify_ms: The forward pass in the cloud, part of `wait_ms`.
        gained: Tokens verified for the first time, EOS included. Usually accepted + 1; less if the next draft, already
            in flight, begins with the token after this one.
        ready: Tokens of this draft that were ready when the previous verdict came; None if nothing was prepared.
        sync_ms: Time from the previous verdict to sending this draft; None if nothing was prepared.
        hints: Hints from early exits while this draft was judged.
        mode: The plan that a controller chose for this round.
        why: The reason that the controller gave.
        queue_ms: Waiting time in the cloud, part of `wait_ms`.
        batch: Sessions that shared the forward pass.
        took_ms: Time since the previous round ended; 0 where `promised_ms` is 0.
        promised_ms: What a controller predicted for this many tokens; 0 without a prediction, and right after a change
            of plan.
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
        prefill_ms: The edge's prefill; 0 if no model runs on the edge.
        cloud_prefill_ms: The verifier's prefill.
        ttft_ms: Time to the first verified token.
        total_ms: Time to the end of the answer.
        resumes: How often the answer continued after a lost link.
        draft_forwards: Forward passes of the edge's model, without its prefill.
        predrafts: Verdicts that came while a pre-draft existed.
        predraft_hits: How many of these verdicts the pre-draft survived.
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
        """Mean tokens gained per round; 0 without rounds."""
        if not self.rounds:
            return 0.0
        return sum(r.gained for r in self.rounds) / len(self.rounds)

    @property
    def acceptance(self) -> float:
        """Share of draft tokens that were accepted; 0 if nothing was drafted."""
        drafted = sum(r.drafted for r in self.rounds)
        return sum(r.accepted for r in self.rounds) / drafted if drafted else 0.0

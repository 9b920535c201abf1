# SPDX-License-Identifier: Apache-2.0
"""What `specnav bench clients` leaves of one method with this many clients."""

from __future__ import annotations

import msgspec

BUSY = 0.9
"""With more than this share of the machine's cores busy, processors decide, not the verifier."""
CLIENT_BOUND, DISTURBED = "client-bound", "disturbed"


class ClientsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One method with this many clients. Rates are tokens a second while all were asking.

    slow: what all but a twentieth of the clients reach or exceed. verify_ms, queue_ms, batch: of the rounds as the
    verdicts report them (medians, and the mean). tokens_a_round, rows: tokens that a round brought, and rows that it
    brought into a forward. server: the engine's own figures of that time. answers, wrong: those that came to their
    end, and which of them were not the target's; near_ties: others that left it at a near-tie that rounding may flip.
    errors: clients that ended early, and why. cores_busy: share of the machine's cores that worked, for any program;
    cores_ours: for the verifier, the link and the clients. gap_ms, gap_ms_p95: between two chunks of tokens at a
    client, prompts included: median and 95th percentile. prompt_tokens, answer_tokens: of the questions that were
    asked, and of what the target answers.
    """

    method: str
    clients: int
    rate: float
    median: float
    slow: float
    verify_ms: float
    queue_ms: float
    batch: float
    answers: int
    wrong: int
    near_ties: int = 0
    errors: list[str] = msgspec.field(default_factory=list)
    server: dict[str, float] = msgspec.field(default_factory=dict)
    tokens_a_round: float = 1.0
    rows: float = 1.0
    cores_busy: float = 0.0
    cores_ours: float = 0.0
    seconds: float = 0.0
    gap_ms: float = 0.0
    gap_ms_p95: float = 0.0
    prompt_tokens: list[int] = msgspec.field(default_factory=list)
    answer_tokens: list[int] = msgspec.field(default_factory=list)

    @property
    def mark(self) -> str:
        """Why the figures are not the verifier's: the clients kept the cores busy, or mostly others did; else ""."""
        if self.cores_busy <= BUSY:
            return ""
        return CLIENT_BOUND if self.cores_ours >= self.cores_busy / 2 else DISTURBED

    @property
    def cores_others(self) -> float:
        """Share of the machine's cores that worked for others."""
        return max(0.0, self.cores_busy - self.cores_ours)

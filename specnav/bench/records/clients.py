# SPDX-License-Identifier: Apache-2.0
"""The results of `specnav bench clients`, one row for each method and number of clients."""

from __future__ import annotations

import msgspec

from specnav.results.demo import Setting

CLIENTS_FILE = "clients.json"
BUSY = 0.9
"""If more than this share of the machine's cores is busy, the processors limit the rate, not the verifier."""
CLIENT_BOUND, DISTURBED = "client-bound", "disturbed"


class ClientsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One method with one number of clients. Rates are tokens per second while all clients were active.

    slow: the rate that 95 % of the clients reach or exceed. verify_ms, queue_ms: medians over rounds, as reported in
    the verdicts; batch: their mean. tokens_a_round: tokens gained per round; rows: rows per round in a forward.
    server: the engine's own figures for this time. answers: complete answers; wrong: those that differ from the
    target's; near_ties: further answers that differ only at a near-tie, which rounding may flip.
    errors: clients that ended early, and why. cores_busy: share of the machine's cores in use by any program;
    cores_ours: by the verifier, the link and the clients. gap_ms, gap_ms_p95: median and 95th percentile of the time
    between two chunks of tokens at a client, including prompts. prompt_tokens, answer_tokens: lengths of the questions
    and of the target's answers.
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
        """Why the verifier did not limit the rate: clients or other programs kept the cores busy; "" if it did."""
        if self.cores_busy <= BUSY:
            return ""
        return CLIENT_BOUND if self.cores_ours >= self.cores_busy / 2 else DISTURBED

    @property
    def cores_others(self) -> float:
        """Share of the machine's cores in use by other programs."""
        return max(0.0, self.cores_busy - self.cores_ours)


class ClientsRun(msgspec.Struct, frozen=True, kw_only=True):
    """`clients.json`. acceptance: one line, if it was emulated."""

    config: dict[str, Setting] = msgspec.field(default_factory=dict)
    started_at: str = ""
    interrupted: bool = False
    acceptance: str | None = None
    rows: list[ClientsRow]

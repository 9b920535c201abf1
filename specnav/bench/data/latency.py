# SPDX-License-Identifier: Apache-2.0
"""Latency models of the published methods, as pure functions. All times in milliseconds.

Notation, the same for all papers: `gamma` draft tokens per round, `tau` tokens gained per round (accepted + 1), `n`
tokens of the answer, `t_draft` one draft forward (Tp), `t_verify` one verify forward (Tq), `t_link` one-way link time
(Tc), `rtt` = 2 * t_link, `miss` pre-draft cache miss rate (r), `t_sync` synchronisation on a hit (Tr), `alpha`
probability that one draft token is accepted. The models assume no other cost. Measurements are compared with them.
"""

from __future__ import annotations

from specdec.row_ms import RowMs


def forward_ms(ms: float, rows: int) -> float:
    """Time of a forward pass over `rows` rows; `ms` may depend on the number of rows."""
    return ms.for_rows(rows) if isinstance(ms, RowMs) else ms


def cloud_ar(n: float, t_verify: float, t_link: float) -> float:
    """Streamed decoding in the cloud alone: one trip each way, one forward per token (early-exit paper, section 2)."""
    return 2 * t_link + n * t_verify


def cloud_sd(n: float, tau: float, gamma: int, t_draft_cloud: float, t_verify: float, t_link: float) -> float:
    """Draft and target both in the cloud (early-exit paper, section 2)."""
    return 2 * t_link + n / tau * (gamma * t_draft_cloud + t_verify)


def edge_sd(n: float, tau: float, gamma: int, t_draft: float, t_verify: float, t_link: float) -> float:
    """Draft on the edge, target in the cloud, one round after the other (early-exit paper, section 2; DSD)."""
    return n / tau * (2 * t_link + gamma * t_draft + t_verify)


def split(n: float, t_edge: float, t_cloud: float, t_link: float) -> float:
    """Layer-split inference: one round trip per token."""
    return n * (2 * t_link + t_edge + t_cloud)


def fsd(
    n: float,
    tau: float,
    gamma: int,
    t_draft: float,
    t_verify: float,
    t_link: float,
    miss: float,
    t_sync: float,
) -> float:
    """Early-exit hints with pre-drafting: drafting takes time only on a cache miss (early-exit paper, section 4)."""
    return n / tau * (2 * t_link + miss * gamma * t_draft + (1 - miss) * t_sync + t_verify)


def fsd_speedup_over_sd(gamma: int, c: float, miss: float) -> float:
    """Early-exit paper, Eq. 9: no link, no synchronisation; c = t_draft / t_verify."""
    return (gamma * c + 1) / (miss * gamma * c + 1)


def expected_tokens(alpha: float, gamma: int) -> float:
    """E[N] of a round with independent acceptance: accepted prefix plus one (Leviathan 2023; PicoSpec section 3)."""
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is a probability, got {alpha}")
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def acceptance_for(tokens: float, gamma: int) -> float:
    """The alpha at which `expected_tokens` is `tokens` per round; 0 below 1 token, 1 above gamma + 1."""
    low, high = 0.0, 1.0
    for _ in range(60):  # bisection, to the last bit of a float
        middle = (low + high) / 2
        if expected_tokens(middle, gamma) < tokens:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def picospec_round(alpha: float, gamma: int, t_draft_batch: float, t_verify: float, rtt: float) -> float:
    """Mean round time of the asynchronous pipeline (PicoSpec, section 3).

    A full hit (alpha**gamma) costs max(drafting, link + verification), a miss costs the synchronous round.
    """
    hit = alpha**gamma
    return hit * max(t_draft_batch, rtt + t_verify) + (1 - hit) * (t_draft_batch + rtt + t_verify)


def dssd_comm(alpha: float, gamma: int, t_row: float, t_ntt: float) -> float:
    """Mean communication of a DSSD round: a distribution row goes down on every rejection (DSSD, section 4).

    `t_row` = |V| * bits / downlink rate; `t_ntt` = the link's fixed time.
    """
    return (1 - alpha**gamma) * t_row + t_ntt

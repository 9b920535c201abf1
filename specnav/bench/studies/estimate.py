"""How long a study will take: by the latency formulas, which is close where forwards are paced."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.methods import get_method
from specnav.bench import latency
from specnav.bench.core.loop import WARM_UP_TOKENS

ALPHA = 0.5
"""Chance that a draft token of the shipped text pair is accepted."""
START_S = 8.0
"""Loading a small pair and starting the processes."""
LEAST_DRAFT_MS, LEAST_VERIFY_MS, OVERHEAD_MS = 2.0, 4.0, 2.0
"""What the shipped pair takes without pacing, and a round beside its parts."""


@dataclass(frozen=True)
class Times:
    """Milliseconds as a run will be given them."""

    rtt: float
    draft: float
    verify: float
    cloud_draft: float


def answer_s(name: str, tokens: int, gamma: int, times: Times) -> float:
    """Seconds of one answer; pre-drafting is taken to gain nothing."""
    method = get_method(name)
    draft, cloud_draft = (max(one, LEAST_DRAFT_MS) for one in (times.draft, times.cloud_draft))
    verify = max(times.verify, LEAST_VERIFY_MS) + OVERHEAD_MS
    tau = latency.expected_tokens(ALPHA, gamma)
    if method.split:
        rest = latency.split(tokens, verify / 4, verify * 3 / 4, times.rtt / 2)
    elif method.drafts:
        rest = latency.edge_sd(tokens, tau, gamma, draft, verify, times.rtt / 2)
    elif method.cloud_drafts:
        rest = latency.cloud_sd(tokens, tau, gamma, cloud_draft, verify, times.rtt / 2)
    else:
        rest = latency.cloud_ar(tokens, verify, times.rtt / 2)
    return (times.rtt + verify + rest) / 1e3


def warm_up_s(name: str, tokens: int, gamma: int, times: Times) -> float:
    """Seconds of the short answer before the first question."""
    return answer_s(name, min(tokens, WARM_UP_TOKENS), gamma, times)


def in_words(seconds: float) -> str:
    """A duration for a person."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

"""What an answer costs in dollars: API prices (early-exit paper, Table 1) and GPU hours (SpecEdge, Table 1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens, in and out."""

    input: float
    output: float


@dataclass(frozen=True)
class Workload:
    """`requests` of `tokens_in` prompt and `tokens_out` answer tokens; gamma drafts a round, tau tokens gained."""

    requests: int = 1_000_000
    tokens_in: int = 100
    tokens_out: int = 500
    gamma: int = 4
    tau: float = 2.5


@dataclass(frozen=True)
class ApiCost:
    """Dollars for the whole workload."""

    cloud_ar: float
    cloud_sd: float
    edge_sd: float


def api_cost(target: Price, draft: Price, work: Workload) -> ApiCost:
    """Cost by method when a verified round is billed as one output token of the target.

    This reading reproduces all twelve figures of the early-exit paper's Table 1 (which truncates to whole dollars):
    edge SD bills n/tau output tokens; cloud SD adds the draft's prompt and its gamma tokens a round.
    """
    millions_in = work.requests * work.tokens_in / 1e6
    millions_out = work.requests * work.tokens_out / 1e6
    rounds = millions_out / work.tau
    edge_sd = millions_in * target.input + rounds * target.output
    return ApiCost(
        cloud_ar=millions_in * target.input + millions_out * target.output,
        cloud_sd=edge_sd + millions_in * draft.input + rounds * work.gamma * draft.output,
        edge_sd=edge_sd,
    )


def kilotokens_per_dollar(
    tokens_per_s: float, server_per_hour: float, edges: int = 0, edge_per_hour: float = 0.0
) -> float:
    """Cost efficiency of a server (and its edge devices), thousands of tokens a dollar (SpecEdge, Table 1)."""
    return tokens_per_s * 3.6 / (server_per_hour + edges * edge_per_hour)

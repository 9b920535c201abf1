# SPDX-License-Identifier: Apache-2.0
"""The cost of answers in dollars: API prices (early-exit paper, Table 1) and GPU hours (SpecEdge, Table 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from specdec.options import DecodingOptions
from specdec.settings import check_settings, same_as, setting
from specnav.bench.data.papers import figures
from specnav.bench.records.study import StudyResults
from specnav.bench.studies.plan import Study, StudyFindings, Table
from specnav.errors import UsageError
from specnav.report.charts import RowChart, RowSeries

WAYS = {"cloud_ar": "cloud AR", "cloud_sd": "cloud SD", "edge_sd": "edge SD"}


class Price(NamedTuple):
    """Dollars per million tokens, in and out."""

    input: float
    output: float


def api_cost(target: Price, draft: Price, work: CostAsked) -> dict[str, float]:
    """Dollars for the whole workload by WAYS, if a verified round is billed as one output token of the target.

    This assumption reproduces all twelve figures of the early-exit paper's Table 1 (which truncates to whole dollars):
    edge SD bills n/tau output tokens; cloud SD adds the draft's prompt and its gamma tokens per round.
    """
    millions_in = work.requests * work.tokens_in / 1e6
    millions_out = work.requests * work.tokens_out / 1e6
    rounds = millions_out / work.tau
    edge_sd = millions_in * target.input + rounds * target.output
    return {
        "cloud_ar": millions_in * target.input + millions_out * target.output,
        "cloud_sd": edge_sd + millions_in * draft.input + rounds * work.gamma * draft.output,
        "edge_sd": edge_sd,
    }


def kilotokens_per_dollar(
    tokens_per_s: float, server_per_hour: float, edges: int = 0, edge_per_hour: float = 0.0
) -> float:
    """Cost efficiency of a server and its edge devices, thousands of tokens per dollar (SpecEdge, Table 1)."""
    return tokens_per_s * 3.6 / (server_per_hour + edges * edge_per_hour)


@dataclass(frozen=True)
class CostAsked:
    """The numbers of the study: the workload and its prices. Raises UsageError."""

    target_price: str = setting("", "IN,OUT dollars per million tokens; none: the early-exit paper's four pairs.")
    draft_price: str = setting("0,0", "IN,OUT for a draft model that runs in the cloud.")
    requests: int = setting(1_000_000, "Requests to pay for.", 1)
    tokens_in: int = setting(100, "Prompt tokens per request.", 0)
    tokens_out: int = setting(500, "Answer tokens per request.", 1)
    gamma: int = same_as(DecodingOptions, "gamma")
    tau: float = setting(2.5, "Tokens gained per round.", 1)

    def __post_init__(self) -> None:
        check_settings(self, UsageError)
        for price in filter(None, (self.target_price, self.draft_price)):
            parse_price(price)


def parse_price(text: str) -> Price:
    """Parse `IN,OUT` in dollars per million tokens. Raises UsageError."""
    try:
        price = Price(*map(float, text.split(",")))
    except (TypeError, ValueError):
        price = Price(-1.0, -1.0)
    if not all(0 <= value < float("inf") for value in price):
        raise UsageError(f"a price must be IN,OUT in dollars per million tokens, got {text!r}: give e.g. 0.9,0.9")
    return price


def _read(results: StudyResults) -> StudyFindings:
    asked = CostAsked(**results.config)  # type: ignore[arg-type]
    paper: dict[str, Any] = {}
    if asked.target_price:
        costs = {"yours": api_cost(parse_price(asked.target_price), parse_price(asked.draft_price), asked)}
    else:
        printed = figures()["fsd_000"]["api_cost"]["rows"]
        paper = {f"{row['draft']} → {row['target']}": row for row in printed}
        costs = {
            name: api_cost(Price(*row["target_price"]), Price(*row["draft_price"]), asked)
            for name, row in paper.items()
        }
    is_printed = replace(asked, target_price="", draft_price=CostAsked.draft_price) == CostAsked()
    rows = []
    for name, cost in costs.items():
        beside = {way: f" (paper {paper[name][way]})" if paper and is_printed else "" for way in WAYS}
        saved = 1 - cost["edge_sd"] / cost["cloud_ar"] if cost["cloud_ar"] else 0.0
        rows.append((name, *(f"{cost[way]:,.0f}{beside[way]}" for way in WAYS), f"{saved:.0%}"))
    head = ("Pair", *(f"{words}, $" for words in WAYS.values()), "Edge saves")
    title = (
        f"{asked.requests:,} requests, {asked.tokens_in} in + {asked.tokens_out} out tokens, γ = {asked.gamma}, "
        f"τ = {asked.tau:g}"
    )
    series = tuple(
        RowSeries(words, tuple(one[way] for one in costs.values()), shade=place)
        for place, (way, words) in enumerate(WAYS.items())
    )
    return StudyFindings([RowChart("API bills", "$", tuple(costs), series)], [Table(title, head, tuple(rows))])


STUDY = Study(
    name="cost",
    title="API bills",
    question="What does an API bill with and without a draft on the edge?",
    read=_read,
    kind="computed",
    how=lambda results: [(name, str(value)) for name, value in results.config.items()],
    own=CostAsked,
)

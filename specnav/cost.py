"""`specnav cost`: dollars for a workload: the cloud alone, with a cloud draft, or with an edge draft."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from specnav.bench.data.costs import Price, Workload, api_cost
from specnav.bench.data.papers import figures
from specnav.errors import UsageError


def parse_price(text: str) -> Price:
    """`IN,OUT` in dollars per million tokens; raises UsageError."""
    try:
        price = Price(*(float(part) for part in text.split(",")))
    except (TypeError, ValueError):
        raise UsageError(
            f"a price is IN,OUT in dollars per million tokens, e.g. 0.9,0.9; got {text!r}"
        ) from None
    if not all(0 <= value < float("inf") for value in (price.input, price.output)):
        raise UsageError(f"prices must be finite and not negative; got {text!r}")
    return price


def run_cost(target: str | None, draft: str | None, work: Workload) -> int:
    """Print one table; without prices, the early-exit paper's four pairs with its printed figures beside ours."""
    table = Table(
        title=f"{work.requests:,} requests, {work.tokens_in} in + {work.tokens_out} out tokens, "
        f"γ = {work.gamma}, τ = {work.tau}",
        title_justify="left",
    )
    for column in ("pair", "cloud AR $", "cloud SD $", "edge SD $", "edge saves"):
        table.add_column(column, justify="left" if column == "pair" else "right")
    if target is not None:
        rows = [("yours", parse_price(target), parse_price(draft or "0,0"), None)]
    else:
        rows = [
            (
                f"{row['draft']} → {row['target']}",
                Price(*row["target_price"]),
                Price(*row["draft_price"]),
                row,
            )
            for row in figures()["fsd_000"]["api_cost"]["rows"]
        ]
    printed = work == Workload()
    for name, target_price, draft_price, paper in rows:
        cost = api_cost(target_price, draft_price, work)
        cells = [
            f"{getattr(cost, method):,.0f}" + (f" (paper {paper[method]})" if paper and printed else "")
            for method in ("cloud_ar", "cloud_sd", "edge_sd")
        ]
        saved = 1 - cost.edge_sd / cost.cloud_ar if cost.cloud_ar else 0.0
        table.add_row(name, *cells, f"{saved:.0%}")
    Console().print(table)
    return 0

"""`specnav payloads`: bytes of a round of rejection sampling on a large vocabulary."""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table

from specnav.bench.studies.payloads import Payload, RowShape, payloads

SAMPLINGS: tuple[tuple[int, float], ...] = ((0, 1.0), (50, 1.0), (0, 0.9))
"""(top-k, top-p) weighed where none is asked for: everything possible, and the two usual cuts."""


def run_payloads(
    vocab: int,
    rounds: int,
    gamma: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    noise: float,
    seed: int,
) -> int:
    """Print a table for each sampling. Raises EvaluationError."""
    torch.set_num_threads(1)  # the rows are short work: more threads wait for each other
    asked = ((top_k or 0, 1.0 if top_p is None else top_p),) if (top_k, top_p) != (None, None) else SAMPLINGS
    console = Console()
    for k, p in asked:
        shape = RowShape(vocab=vocab, noise=noise, temperature=temperature, top_k=k, top_p=p)
        console.print(table(shape, payloads(shape, rounds=rounds, gamma=gamma, seed=seed), gamma))
    low, high = RowShape.exponents
    console.print(
        f"synthetic rows: p ~ rank^-s at temperature 1, s uniform in {low:g} to {high:g}; the draft's logits are the "
        f"target's plus normal noise of deviation {noise:g}; describing, encoding and recovering are the real ones",
        soft_wrap=True,
    )
    return 0


def table(shape: RowShape, rows: list[Payload], gamma: int) -> Table:
    """One sampling's rows as a terminal's table."""
    cut = [f"top-k {shape.top_k}"] * bool(shape.top_k) + [f"top-p {shape.top_p:g}"] * (shape.top_p < 1)
    found = Table(
        title=f"{shape.vocab:,} tokens, temperature {shape.temperature:g}, {' and '.join(cut) or 'full support'}; "
        f"{rows[0].rounds} rounds, γ = {gamma}, acceptance {rows[0].acceptance:.2f}",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for name in (
        "scheme",
        "B up",
        "B down",
        "B down on rejection",
        "p95",
        "most",
        "asked again",
        "whole rows",
    ):
        found.add_column(name, justify="left" if name == "scheme" else "right")
    for row in rows:
        found.add_row(
            row.scheme,
            f"{row.up:.1f}",
            f"{row.down:,.0f}",
            f"{row.rejected_down:,.0f}",
            f"{row.rejected_p95:,.0f}",
            f"{row.rejected_max:,}",
            f"{row.again:.1%}",
            str(row.whole_rows),
        )
    return found

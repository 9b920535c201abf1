# SPDX-License-Identifier: Apache-2.0
"""The card of a distilled draft: what it predicts, how it learnt, what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from specnav.recipes.drafts.figures import DraftFigures, SampledFigures


@dataclass(frozen=True)
class DraftProvenance:
    """How a draft came about. data: in words; minutes: of training, all sittings; answers: how many of the target's it
    learnt from, of answer_tokens in all; row_tokens: places of a row; connected: whether the target was asked through a
    verifier.
    """

    name: str
    target: str
    parameters: int
    target_parameters: int
    started_from: str
    data: str
    answers: int
    answer_tokens: int
    row_tokens: int
    held_out: int
    steps: int
    rows: int
    on_policy: float
    given_share: float
    reverse: float
    hard: float
    lr: float
    seed: int
    minutes: float
    machine: str
    connected: bool = False


def write_card(
    making: DraftProvenance,
    gamma: int,
    before: DraftFigures,
    after: DraftFigures,
    sampled: SampledFigures | None,
) -> str:
    """README.md of the draft's folder."""
    return f"""---
library_name: transformers
---
# {making.name}

A draft model for `{making.target}`: it guesses what the target will say, and the target decides every token.
{_sizes(making)} Made by `specnav train draft`, seed {making.seed}.

## Training
Started from {making.started_from}. {_recipe(making)}
{making.steps} updates of {making.rows} rows of {making.row_tokens} tokens, learning rate {making.lr:g},
{making.minutes:.0f} minutes on {making.machine}.
Data: {making.data}. Curve: `acceptance.svg`, `acceptance.json`.

## Figures
On {after.answers} answers of the target ({after.tokens} tokens) to prompts held out, greedy, γ = {gamma}, with the
weights as saved. τ: tokens a verification gains, the target's own included. Agreement: share of tokens that are the
draft's likeliest.

| | τ | agreement |
|---|---|---|
| before | {before.tau:.2f} | {before.agreement:.1%} |
| after | {after.tau:.2f} | {after.agreement:.1%} |
{_sampled(sampled)}
One training run, one seed.
"""


def _sizes(making: DraftProvenance) -> str:
    beside = f" (target: {making.target_parameters / 1e6:.2f}M)" if making.target_parameters else ""
    return f"It has {making.parameters / 1e6:.2f}M parameters{beside}."


def _recipe(making: DraftProvenance) -> str:
    if making.connected:
        return f"Learnt {making.answers} answers of the target, its picks alone, asked through a verifier."
    if not making.target_parameters:
        return "Learnt the target's picks from verdicts that were logged, without the target."
    return (
        f"Distilled: {making.on_policy:.0%} of the rows are the draft's own words, {making.given_share:.0%} were given "
        f"to read,\nthe others are {making.answers} answers of the target ({making.answer_tokens:,} tokens); of the "
        f"loss {making.hard:.0%} is the target's\nlikeliest token, the rest the Kullback-Leibler distance "
        f"({making.reverse:.0%} of it reversed)."
    )


def _sampled(found: SampledFigures | None) -> str:
    if found is None:
        return ""
    return f"""
At temperature 1, on {found.tokens} tokens that the target sampled: a sampled draft token is accepted with a chance of
{found.overlap:.1%} (rejection sampling; mean overlap of both distributions). The target's own entropy is
{found.entropy:.2f} nats a token: without shared noise it would itself say the same token again {found.again:.1%} of
the time.
"""

# SPDX-License-Identifier: Apache-2.0
"""The card of trained exits: what they are, how they were made, what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from specnav.recipes.exits.measure import ExitFigures
from specnav.recipes.exits.task import HARD_SHARE


@dataclass(frozen=True)
class ExitsProvenance:
    """How a set of exits came about. data: in words; minutes: of training, all sittings."""

    name: str
    target: str
    layer_count: int
    layers: tuple[int, ...]
    width: int
    parameters: int
    target_parameters: int
    data: str
    samples: int
    held_back: int
    steps: int
    batch: int
    lr: float
    seed: int
    minutes: float
    machine: str


def write_card(making: ExitsProvenance, figures: ExitFigures) -> str:
    """README.md of the exits' folder."""
    rows = "\n".join(
        f"| {layer} | {layer + 1} of {making.layer_count} | {figures.untrained[layer]:.1%} "
        f"| {figures.agreement[layer]:.1%} | {figures.sure[layer]:.1%} |"
        for layer in making.layers
    )
    share = making.parameters / making.target_parameters
    return f"""---
license: apache-2.0
---
# {making.name}

Early exits for `{making.target}`: a bottleneck adapter (width {making.width}) after each of {len(making.layers)}
layers, which feeds the target's own final norm and LM head. {making.parameters / 1e6:.2f}M parameters
({share:.1%} of the target's), {2 * making.parameters / 1e3:.0f} kB in float16. They guess what the target will say
while it still computes; tokens are decided by the final exit alone. Made by `specnav train exits`, seed {making.seed}.

## Training
Data: {making.data};
{making.samples} samples. The target was frozen, and its weights are bit by bit what they were.
Loss: {1 - HARD_SHARE:g} of the Kullback-Leibler distance from the final exit's distribution, {HARD_SHARE:g} of the
cross-entropy of its likeliest token, the same weight for every exit. {making.steps} updates of {making.batch} samples,
learning rate {making.lr:g}, {making.minutes:.1f} minutes on {making.machine}. Curves: `curves.svg`.

## Figures
Agreement: the share of tokens for which an exit's likeliest token is the final exit's. On {figures.tokens} tokens of
{making.held_back} samples held back, with the weights as saved, computed in the target's number type. *Untrained*:
the target's head on that layer without an adapter. *Sure half*: agreement on the half of the tokens that the exit
is most confident of.

| after layer | depth | untrained | agreement | sure half |
|---|---|---|---|---|
{rows}

At least one exit agrees on {figures.any_exit:.1%} of the tokens; the first that does is exit number
{figures.first:.1f} of {len(making.layers)} on average. One training run, one seed.
"""

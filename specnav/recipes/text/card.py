# SPDX-License-Identifier: Apache-2.0
"""The model cards: how a model of the text pair was made, and what was measured, in words a stranger can check."""

from __future__ import annotations

from dataclasses import dataclass

from specnav.recipes.text.measure import PairFigures
from specnav.recipes.text.models import ANSWER_TOKENS, LlamaShape
from specnav.recipes.text.repeats import LONGEST_PERIOD, SHORTEST_LOOP


@dataclass(frozen=True)
class TextProvenance:
    """How one model came about. loss: on files held back, of the weights as saved; other_loss: the other model's."""

    role: str
    shape: LlamaShape
    parameters: int
    vocabulary: int
    how: str
    steps: int
    tokens: int
    minutes: float
    losses: dict[str, float]
    other_losses: dict[str, float]


@dataclass(frozen=True)
class Data:
    """What was read: the interpreter and how much of its library."""

    python: str
    files: int
    held_back: int
    characters: int
    tokens: int
    talks: int
    seed: int
    machine: str


def write_card(making: TextProvenance, data: Data, figures: dict[str, PairFigures], gamma: int) -> str:
    """The README.md of one model folder. figures: by the name of a set of questions."""
    shape, other = making.shape, "draft" if making.role == "target" else "target"
    losses = "\n".join(
        f"| {name} | {loss:.3f} | {making.other_losses[name]:.3f} |" for name, loss in making.losses.items()
    )
    rows = "\n".join(
        f"| {name} | {of.questions} | {of.tau:.2f} | {of.agreement:.1%} | {of.looping:.1%} | {of.ended:.1%} "
        f"| {of.mean_tokens:.0f} |"
        for name, of in figures.items()
    )
    size = making.parameters / 1e6
    return f"""---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# text-{making.role}

The {making.role} of a pair of small text models for trying out and measuring speculative decoding. It writes
Python and the English of Python's documentation, whatever it is asked; it is not an assistant.

Llama, {shape.layers} layers of width {shape.width} (inner {shape.inner}, {shape.heads} query and {shape.kv_heads}
key/value heads), {size:.2f}M parameters, tied embeddings, float16. Byte-level BPE of {making.vocabulary}, the same
for both models. Made by `specnav train text`, seed {data.seed}.

## Data
The standard library of Python {data.python}, without tests and character tables: {data.files} files to learn
from, {data.held_back} held back by name; {data.characters / 1e6:.1f}M characters, {data.tokens / 1e6:.1f}M tokens
in both views. Licence headers are cut off. The two views are whole files, and {data.talks} questions made from
functions (the docstring or the name asks, the source or the docstring answers) and from help topics. The
library's text is under the PSF licence and is not part of this repository.

## Training
{making.how} {making.steps} updates, {making.tokens / 1e6:.1f}M token visits, {making.minutes:.0f} minutes on
{data.machine}.

## Figures
Cross-entropy on the files held back, nats a token:

| text | this model | the {other} |
|---|---|---|
{losses}

Greedy answers of up to {ANSWER_TOKENS} tokens, draft length γ = {gamma}. τ: tokens gained a verification (accepted
ones and the target's own). Agreement: share of the answers' tokens that are the draft's likeliest. Loops: share of
answers in which a piece of up to {LONGEST_PERIOD} tokens stands three times in a row, over at least {SHORTEST_LOOP}
tokens in its copies. Ended: share of answers that came to their end.

| questions | number | τ | agreement | loops | ended | mean tokens |
|---|---|---|---|---|---|---|
{rows}

Measured by `specnav.recipes.text.measure` on the weights as saved, computed in float32. One training run, one seed.
"""

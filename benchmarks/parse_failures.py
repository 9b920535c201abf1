# SPDX-License-Identifier: Apache-2.0
"""How many answers of a model with random weights contain no action: a test of the robot's grammar.

    python -m benchmarks.parse_failures [--answers 2000] [--tokens 64] [--model default_models/nav-target]

The model has the folder's config and tokenizer, and random weights. Every answer is sampled at temperature 1 on a
picture of noise, half of the answers with the action first. Prints how many answers contain no action with the grammar,
and, for a tenth of them, without it. The exit code is 1 if an answer with the grammar contains none.
"""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from spec_vlm_nav.language.actions import find_action
from spec_vlm_nav.language.grammar import action_grammar
from specdec.models import LoadedModel, chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions

TARGET = Path(__file__).resolve().parents[1] / "default_models" / "nav-target"
EVERY = 100
"""Number of answers between two progress lines."""


def main() -> int:
    """Ask, count, and print."""
    parser = argparse.ArgumentParser(description="How many answers of random weights contain no action.")
    parser.add_argument("--answers", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--model", default=str(TARGET))
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(given.model)
    randomise(model)
    grammars = [action_grammar(model.grammars, given.tokens, first) for first in (False, True)]
    kinds: Counter[str] = Counter()
    failed, bare_failed, bare, began = 0, 0, 0, time.monotonic()
    for seed in range(given.answers):
        text = answer(model, seed, given.tokens, grammars[seed % 2])
        action = find_action(text)
        kinds[action.kind.name.lower() if action is not None else "none"] += 1
        if action is None:
            failed += 1
            print(f"no action in answer {seed}: {text!r}")
        if seed % 10 == 0:
            bare += 1
            bare_failed += find_action(answer(model, seed, given.tokens, "")) is None
        if (seed + 1) % EVERY == 0:
            print(
                f"{seed + 1} of {given.answers}, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    said = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    print(f"with the grammar {failed} of {given.answers} answers have no action ({said})")
    print(f"without it {bare_failed} of {bare}")
    return int(failed > 0)


def randomise(model: LoadedModel) -> None:
    """Replace every matrix by noise of the same deviation, so that all rows of the vocabulary are equally likely."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.std() * torch.randn(parameter.shape, generator=generator))


def answer(model: LoadedModel, seed: int, tokens: int, grammar: str) -> str:
    """The model's sampled answer to a picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (112, 140, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    prompt = chat_prompt(model, "find the bottle", images=[buffer.getvalue()])
    options = GenerationOptions(tokens, temperature=1.0, seed=seed, grammar=grammar)
    text: str = model.tokenizer.decode(generate_local(model, prompt, options))
    return text


if __name__ == "__main__":
    sys.exit(main())

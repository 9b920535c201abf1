# SPDX-License-Identifier: Apache-2.0
"""Near-ties on real logits: a target's answers recomputed in another number type, token by token and in one pass.

    python benchmarks/near_ties.py MODEL ANSWERS.jsonl --dtype bfloat16 [--count 200] [--tokens 32]

ANSWERS.jsonl: texts as `specnav train draft` keeps them (texts.jsonl, held-out.jsonl). A *flip* is a position at which
the two ways pick different tokens. Its margin is the difference between the logits of these two tokens when computed
token by token; the noise is the difference of a position's logits between the two ways. A margin above twice the noise
of its answer is an error. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from specdec.errors import SpecdecError
from specdec.models import Prompt, load_model
from specdec.options import GenerationOptions
from specnav.bench.runner.near_ties import both_ways
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import load_samples


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("answers", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=32)
    asked = parser.parse_args()
    try:
        return measure(asked.model, asked.answers, asked.dtype, asked.count, asked.tokens)
    except (SpecdecError, TrainingError) as error:
        print(f"near_ties: error: {error}", file=sys.stderr)
        return 1


@torch.inference_mode()
def measure(path: str, answers: Path, dtype: str, count: int, tokens: int) -> int:
    """Compare and print; returns 1 if there is an error, else 0."""
    exact, model = load_model(path, dtype="float32"), load_model(path, dtype=dtype)
    flips: list[float] = []
    close = errors = places = other = 0
    noises, margins = [], []
    for text in load_samples(answers)[:count]:
        prompt, ids = Prompt(text.ids[: text.start]), text.ids[text.start :][:tokens]
        options = GenerationOptions(max_new_tokens=tokens)
        steps, whole = (rows[:-1].float() for rows in both_ways(model, prompt, ids, options))
        encoded = exact.encode(prompt)
        session = exact.new_session()
        true = torch.cat([session.prefill(encoded)[None], session.extend(list(ids))])[:-1]
        noise = float((steps - whole).abs().max())
        best, second = steps.topk(2, -1).values.unbind(-1)
        close += int((best - second < noise).sum())
        picks = steps.argmax(-1), whole.argmax(-1)
        for place in (picks[0] != picks[1]).nonzero()[:, 0].tolist():
            row = steps[place]
            flips.append(float(row[picks[0][place]] - row[picks[1][place]]))
            errors += flips[-1] > 2 * noise
        differs = (picks[0] != true.argmax(-1)).nonzero()[:, 0].tolist()
        margins += [float(true[place].max() - true[place][picks[0][place]]) for place in differs]
        other, places = other + len(differs), places + len(ids)
        noises.append(noise)
    print(f"{len(noises)} answers, {places} tokens in {dtype}; noise of an answer {max(noises):.3f} at most")
    print(f"token by token against one pass: {len(flips)} flips, {close} close picks, {errors} errors; "
          f"margins {', '.join(f'{flip:.3f}' for flip in sorted(flips)[-5:]) or 'none'} (the largest)")  # fmt: skip
    print(f"against float32: {other} tokens differ; float32 margins up to {max(margins, default=0.0):.3f}")
    return int(errors > 0)


if __name__ == "__main__":
    sys.exit(main())

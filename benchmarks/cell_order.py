# SPDX-License-Identifier: Apache-2.0
"""How often rounding flips a token of a target on llama.cpp: with drafts in one session, and beside other sessions.

    python -m benchmarks.cell_order smollm2 --questions mt_bench.jsonl

Each answer is computed three times: token by token, in one pass, and token by token in cache cells that another session
has left. The first two use one session alone, and are expected to be equal. For the third, the picks that differ are
counted, and their margins given.
"""

from __future__ import annotations

import argparse

from specdec.models import chat_prompt
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bench.data.questions import load_questions
from specnav.bench.runner.near_ties import both_ways, out_of_order
from specnav.bench.runner.processes import load_target
from specnav.bench.settings import make_config


def main() -> None:
    """Print running totals after each answer; the last line covers all answers."""
    parser = argparse.ArgumentParser(prog="benchmarks.cell_order", description=__doc__)
    parser.add_argument("pair")
    parser.add_argument("--questions", nargs="+", required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-new-tokens", type=int, default=24)
    parser.add_argument("--kv-type", default="auto")
    asked = parser.parse_args()
    target = load_target(make_config({"pair": asked.pair, "engine": "llamacpp", "kv_type": asked.kv_type}))
    options = GenerationOptions(asked.max_new_tokens)
    positions = alone = beside = 0
    margins, noise = [0.0], [0.0, 0.0]
    for number, question in enumerate(load_questions(asked.questions, asked.limit), start=1):
        prompt = chat_prompt(target, question.turns[0])
        ids = generate_local(target, prompt, options)
        steps, at_once = both_ways(target, prompt, ids, options)
        moved = out_of_order(target, prompt, ids, options)
        picks = steps.argmax(-1)
        positions += len(picks)
        alone += int((at_once.argmax(-1) != picks).sum())
        for place in (moved.argmax(-1) != picks).nonzero().flatten().tolist():
            beside += 1
            margins.append(float(steps[place].max() - steps[place, moved[place].argmax()]))
        for way, rows in enumerate((at_once, moved)):
            noise[way] = max(noise[way], float((rows - steps).abs().max()))
        print(
            f"{number} answers, {positions} picks: alone {alone} flips, noise {noise[0]:.2g}; out of order {beside} "
            f"flips, largest margin {max(margins):.3f}, noise {noise[1]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

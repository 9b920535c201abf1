# SPDX-License-Identifier: Apache-2.0
"""How often a pre-draft could be ready when the verdict comes: the possible gain of `fsd` with given models and exits.

    python benchmarks/hint_hits.py TARGET EXITS DRAFT ANSWERS.jsonl [--gamma 4] [--count 8] [--tokens 48]

ANSWERS.jsonl: greedy answers of the target, as `specnav.recipes.drafts.measure --answers` keeps them. Each round is
replayed on the known answer: the draft's chain, the verdict, and the hint of every exit (accepted count and next
token). A round is a hit at k exits if one of the first k hints equals the verdict. Nothing is timed, so a hint that
would come too late for drafting counts as well. The paper's latency formula then gives the gain of `fsd` over `sd` at
the paper's operating points.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

from specdec.drafting import ChainDrafter, DraftModel
from specdec.errors import SpecdecError
from specdec.models import Prompt, load_model
from specdec.models.drafts import load_draft
from specdec.models.plans import Prepared
from specdec.models.session import SessionCursor
from specdec.options import GenerationOptions
from specdec.verifying.exits import load_exits
from specnav.bench.data.latency import edge_sd, fsd
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import load_samples

POINTS = {"rtx-vicuna7b": (25.5, 442.0, 42.0), "jetson-vicuna7b": (83.5, 497.0, 95.0)}
"""From config/points: milliseconds of a draft forward, of a verify forward, and of one way over the link."""
SYNC_MS = 1.0


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("target", "exits", "draft"):
        parser.add_argument(name)
    parser.add_argument("answers", nargs="+", type=Path)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--count", type=int, default=8, help="answers to read from each file")
    parser.add_argument("--tokens", type=int, default=48)
    asked = parser.parse_args()
    try:
        return measure(asked)
    except (SpecdecError, TrainingError) as error:
        print(f"hint_hits: error: {error}", file=sys.stderr)
        return 1


@torch.inference_mode()
def measure(asked: argparse.Namespace) -> int:
    """Print the table."""
    model, draft = load_model(asked.target), load_draft(asked.draft)
    exits = load_exits(asked.exits, model)
    rounds = tokens = 0
    alone, first = dict.fromkeys(exits.layers, 0), dict.fromkeys(exits.layers, 0)
    for text in (text for file in asked.answers for text in load_samples(file)[: asked.count]):
        prompt, answer = Prompt(text.ids[: text.start]), text.ids[text.start :][: asked.tokens]
        cursor = SessionCursor(model.new_session(), GenerationOptions())
        cursor.prefill(Prepared(model.encode(prompt)))
        drafter = ChainDrafter(DraftModel(draft, GenerationOptions()))
        drafter.prefill(prompt)
        at = 0
        while at < len(answer):
            chain = drafter.chain(answer[:at], asked.gamma).draft.ids
            seen: dict[int, Tensor] = {}
            rows = cursor.rows(answer[:at], chain, seen.__setitem__)
            verdict = judged(chain, rows.argmax(-1))
            gained = min(verdict[0] + 1, len(answer) - at)
            if at:  # in the first round one row belongs to the prompt, which was not observed
                hit = False
                for layer in exits.layers:
                    right = judged(chain, exits.logits(layer, seen[layer][-len(rows) :]).argmax(-1)) == verdict
                    alone[layer] += right
                    hit = hit or right
                    first[layer] += hit
                rounds, tokens = rounds + 1, tokens + gained
            at += gained
    tau = tokens / max(rounds, 1)
    print(f"{rounds} rounds, {tokens} tokens, tau {tau:.2f} at gamma {asked.gamma}")
    print("| after layer | its hint is the verdict | one of the hints so far is |\n|---|---|---|")
    for layer in exits.layers:
        print(f"| {layer} | {alone[layer] / rounds:.1%} | {first[layer] / rounds:.1%} |")
    miss = 1 - first[exits.layers[-1]] / rounds
    for name, (t_draft, t_verify, t_link) in POINTS.items():
        sd = edge_sd(1, tau, asked.gamma, t_draft, t_verify, t_link)
        hinted = fsd(1, tau, asked.gamma, t_draft, t_verify, t_link, miss, SYNC_MS)
        print(f"{name}: sd {sd:.1f} ms a token, fsd {hinted:.1f}, {sd / hinted:.2f}x (miss rate {miss:.2f})")
    return 0


def judged(chain: tuple[int, ...], picks: Tensor) -> tuple[int, int]:
    """(accepted tokens of the chain, the next token), given the picks after each token."""
    said = picks.tolist()
    right = next((i for i, token in enumerate(chain) if token != said[i]), len(chain))
    return right, said[right]


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The cost, per draft step, of reporting the draft's probability of its token, which confidence triggers need.

    python -m benchmarks.chance_cost [DRAFT ...] [--steps 3000]

DRAFT is a folder or a GGUF file; the default is the shipped text draft. Drafts of 16 tokens with and without
probabilities alternate in one process, on one thread. Its CPU time is measured, so other programs do not count. Prints
the median time of a step in microseconds, and the median of the drafts' ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from specdec.drafting import ChainDrafter, DraftModel
from specdec.models import GgufOptions, Prompt, load_draft
from specdec.models.gguf.files import gguf_file
from specdec.options import GenerationOptions

SHIPPED = "default_models/text-draft"
CONTEXT = 64
BLOCK = 16


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="The cost of probabilities per draft step.")
    parser.add_argument("drafts", nargs="*", default=[SHIPPED], metavar="DRAFT")
    parser.add_argument("--steps", type=int, default=3000, help="steps of each kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    heads = ("without, us", "with, us")
    print("draft".ljust(40), "vocabulary".rjust(10), *(head.rjust(12) for head in heads), "more".rjust(8))
    for name in given.drafts:
        one_thread = GgufOptions(threads=1) if gguf_file(name) else None
        model = load_draft(name, gguf=one_thread)
        drafter = ChainDrafter(DraftModel(model, GenerationOptions(512)))  # one: its cache's place matters
        drafter.prefill(Prompt(tuple(range(100, 100 + CONTEXT))))
        taken: dict[bool, list[float]] = {False: [], True: []}
        order = [False, True]
        for block in range(given.steps // BLOCK + 2):
            for place, told in enumerate(order):
                drafter.tells_chances = told
                taken[told].append(block_s(drafter, 100 + (2 * block + place) % 500))
            order.reverse()
        plain, with_chances = taken[False][1:], taken[True][1:]  # the first is a warm-up
        more = statistics.median(told / bare for bare, told in zip(plain, with_chances, strict=True)) - 1.0
        figures = (statistics.median(one) * 1e6 for one in (plain, with_chances))
        columns = " ".join(f"{figure:12.1f}" for figure in figures)
        print(name[-40:].ljust(40), f"{model.vocab_size:10}", columns, f"{more:8.1%}", flush=True)
    return 0


def block_s(drafter: ChainDrafter, first: int) -> float:
    """The median time of the steps of one draft after the token `first`, until an EOS, without the first step.

    The first step feeds two rows.
    """
    taken = []
    for size in range(1, BLOCK + 2):
        began = time.thread_time()
        if not drafter.step([first], size):
            break
        taken.append(time.thread_time() - began)
    return statistics.median(taken[1:] or taken)


if __name__ == "__main__":
    sys.exit(main())

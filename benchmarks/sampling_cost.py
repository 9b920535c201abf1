# SPDX-License-Identifier: Apache-2.0
"""The cost of sampling tokens at a temperature from rows as wide as a large vocabulary.

    python -m benchmarks.sampling_cost [--rows 33] [--vocab 152064]

Prints the milliseconds that one core takes for all rows together, the least of three runs, by options and by kind of
logits.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from specdec.options import GenerationOptions
from specdec.sampling import Chooser

CASES = {
    "temperature alone": GenerationOptions(temperature=0.9),
    "top-p 0.9": GenerationOptions(temperature=0.9, top_p=0.9),
    "top-k 50": GenerationOptions(temperature=0.9, top_k=50),
    "top-k 50, top-p 0.9": GenerationOptions(temperature=0.9, top_k=50, top_p=0.9),
    "min-p 0.05": GenerationOptions(temperature=0.9, min_p=0.05),
}


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="The cost of sampling tokens.")
    parser.add_argument("--rows", type=int, default=33)
    parser.add_argument("--vocab", type=int, default=152_064)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    spread = 3.0 * torch.randn(given.rows, given.vocab)
    sure = 2.0 * torch.randn(given.rows, given.vocab)
    sure[torch.arange(given.rows), torch.randint(given.vocab, (given.rows,))] += 25.0
    kinds = {
        "normal, deviation 3": spread,
        "one token sure": sure,
        "all alike": torch.zeros(given.rows, given.vocab),
    }
    print(f"{given.rows} rows of {given.vocab}, ms".ljust(28), *(name.rjust(20) for name in kinds))
    for name, options in CASES.items():
        print(name.ljust(28), *(f"{taken_ms(Chooser(options), logits):20.0f}" for logits in kinds.values()))
    return 0


def taken_ms(chooser: Chooser, logits: torch.Tensor) -> float:
    """The least time of three runs."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        chooser.choose(logits, 3)
        taken.append((time.process_time() - began) * 1e3)
    return min(taken)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""What `auto` loses against the best fixed method, in random worlds on a simulated clock. Nothing is measured.

The real edge decodes, with its controller, drafters and estimates; forwards, link and cloud are simulated. Writes
`regret.json` and `regret.html` (table and charts), and prints a summary.

    python -m benchmarks.regret --worlds 40                       # the worlds of the tests
    python -m benchmarks.regret --worlds 200 --first 10000        # fresh ones
    python -m benchmarks.regret --worlds 60 --repeats 0.5         # text that repeats itself; with `ngram`
    python -m benchmarks.regret --worlds 60 --misjudged 1.8       # several rows take longer than the verifier reports
    python -m benchmarks.regret --worlds 60 --bounds              # the loss of a choice made knowing the world
    python -m benchmarks.regret --worlds 60 --compare sd+overlap:hinted-stream,sd+overlap:stream   # two fixed methods
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from rich.progress import Progress

from benchmarks.regret import compared
from benchmarks.regret.bounds import bound_in, words
from benchmarks.regret.page import regret_page
from benchmarks.regret.study import Regret, regret_in
from specdec.errors import OptionsError
from specdec.methods import get_method
from specnav.results.files import write_bytes_atomic

T = TypeVar("T")


def main() -> int:
    """Simulate the worlds, and write and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=40, help="number of worlds (40)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world (0)")
    parser.add_argument("--repeats", type=float, default=0.0, help="share of the text that is a repetition (0)")
    parser.add_argument(
        "--misjudged", type=float, default=1.0, help="times of several rows, as multiples of the reported ones (1)"
    )
    parser.add_argument("--processes", type=int, default=1, help="worlds to simulate at a time (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/regret"), help="folder (runs/regret)")
    parser.add_argument("--bounds", action="store_true", help="what knowing the world beforehand would bring; no page")
    parser.add_argument("--compare", metavar="A,B", help="one fixed method against another, without auto; no page")
    flags = parser.parse_args()
    if flags.worlds < 1 or flags.first < 0 or flags.processes < 1:
        parser.error("--worlds and --processes must be at least 1, and --first at least 0")
    if not 0.0 <= flags.repeats < 1.0 or (flags.repeats and (flags.bounds or flags.compare)):
        parser.error("--repeats must be at least 0 and below 1, and does not go with --bounds or --compare")
    if not 1.0 <= flags.misjudged <= 10.0 or (flags.misjudged > 1.0 and (flags.bounds or flags.compare)):
        parser.error("--misjudged must be 1 to 10, and does not go with --bounds or --compare")
    methods = flags.compare.split(",") if flags.compare else []
    try:
        if methods and (len(methods) != 2 or flags.bounds):
            raise OptionsError("--compare takes two methods, as in sd,fsd, and does not go with --bounds")
        for name in methods:
            if get_method(name).split or get_method(name).drafter != "model":
                raise OptionsError(f"method {name!r} is not simulated")
    except OptionsError as error:
        parser.error(str(error))
    seeds = range(flags.first, flags.first + flags.worlds)
    with Progress() as progress, ProcessPoolExecutor(flags.processes, initializer=_one_thread) as pool:

        def played(play: Callable[[int], T]) -> Iterable[T]:
            return progress.track(pool.map(play, seeds), total=len(seeds), description="worlds")

        if flags.bounds:
            print("\n".join(words(list(played(bound_in)))))
            return 0
        if methods:
            first, second = methods
            found_of_two = list(played(partial(compared.compared_in, first=first, second=second)))
            print("\n".join(compared.words(found_of_two, first, second)))
            return 0
        worlds = list(played(partial(regret_in, repeats=flags.repeats, misjudged=flags.misjudged)))
    found = Regret(worlds=worlds)
    flags.out.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(flags.out / "regret.json", msgspec.json.format(msgspec.json.encode(found), indent=1))
    write_bytes_atomic(flags.out / "regret.html", regret_page(found).encode())
    print("\n".join(found.words()))
    print(f"report: {flags.out / 'regret.html'}")
    return 0


def _one_thread() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())

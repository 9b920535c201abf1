"""What `auto` loses against the best fixed method, in random worlds and a simulated clock. Nothing is measured.

The real edge decodes, with its controller, drafters and estimates; forwards, link and cloud are simulated. Writes
`regret.json` and `regret.html` (table and charts), and prints what they say.

    python scripts/regret.py --worlds 40                       # the worlds of the tests
    python scripts/regret.py --worlds 200 --first 10000        # fresh ones
    python scripts/regret.py --worlds 60 --bounds              # no auto: what somebody would lose who knew the world
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
import torch
from rich.progress import Progress

from evaluation.files import write_bytes_atomic
from evaluation.regret.bounds import bound_in, words
from evaluation.regret.page import regret_page
from evaluation.regret.study import Regret, regret_in


def main() -> int:
    """Play the worlds, write what came."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=40, help="how many (40)")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first (0)")
    parser.add_argument("--processes", type=int, default=1, help="worlds at a time (1)")
    parser.add_argument("--out", type=Path, default=Path("runs/regret"), help="folder (runs/regret)")
    parser.add_argument("--bounds", action="store_true", help="what knowing the world beforehand would bring; no page")
    flags = parser.parse_args()
    if flags.worlds < 1 or flags.first < 0 or flags.processes < 1:
        parser.error("--worlds and --processes are at least 1, --first at least 0")
    seeds = range(flags.first, flags.first + flags.worlds)
    worlds = []
    with Progress() as progress, ProcessPoolExecutor(flags.processes, initializer=_one_thread) as pool:
        if flags.bounds:
            print("\n".join(words(list(progress.track(pool.map(bound_in, seeds), total=len(seeds))))))
            return 0
        task = progress.add_task("worlds", total=len(seeds))
        for one in pool.map(regret_in, seeds):
            worlds.append(one)
            progress.advance(task)
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

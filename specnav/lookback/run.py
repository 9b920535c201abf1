# SPDX-License-Identifier: Apache-2.0
"""Runs `specnav console --bag`: shows the page or writes a clip."""

from __future__ import annotations

from rich.console import Console

from specnav.errors import UsageError
from specnav.lookback.config import Deciders, LookBack
from specnav.lookback.replay_runner import ReplayRunner, check_method
from specnav.terminal import say


def look_back(asked: LookBack, deciders: Deciders) -> int:
    """Show a walk until Ctrl-C, or write a clip of it; returns the exit code. Raises UsageError, EvaluationError."""
    from specnav.lookback.walk import Labels, find_bag, read_walk

    bag, clip, method = asked.bag, asked.clip, asked.again
    console = Console(stderr=True)
    if clip is not None:
        from specnav.lookback.clip import check_clip_name, write_clip

        check_clip_name(clip)
        if method is not None:
            raise UsageError("--again is for the page, but --clip writes a file: leave one of them out")
        if asked.begin >= asked.end:
            raise UsageError(f"--from {asked.begin:g} is not before --to {asked.end:g}")
    if method is not None:
        check_method(method)
    if not bag.exists():
        raise UsageError(f"no bag {bag}: give a .mcap or .db3 file, a bag's folder, or a run's folder")
    walk = read_walk(bag, deciders.image_topic or None)
    for note in walk.notes:
        say(console, note)
    say(console, f"{walk.name}: {len(walk.pictures)} pictures, {len(walk.decisions)} decisions")
    if clip is not None:
        write_clip(walk, clip, asked.begin, asked.end)
        say(console, f"{clip}: written")
        return 0
    try:
        from specnav.lookback.server import serve
    except ImportError as error:
        raise UsageError(f"the page needs {error.name}: pip install '.[console]'") from error

    found = find_bag(bag)
    file = asked.labels or found.with_name(f"{found.stem}.labels.csv")
    kept = Labels(file)
    say(console, f"labels: {file} ({len(kept.by_stamp)} so far); specnav replay {bag} --labels {file}")
    again = ReplayRunner(found, walk, deciders)
    if method is not None:
        again.start(method)
    serve(walk, kept, again, asked.port, lambda words: say(console, words))
    return 0

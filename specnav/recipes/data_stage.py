# SPDX-License-Identifier: Apache-2.0
"""The data stage: several processes render shards of frames; complete shards are never rendered again."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

from specnav.recipes.crew import shared_out
from specnav.recipes.frames import SHARD_FRAMES, FrameData, Pairs, make_shard, shard_files


def make_frames(
    data: FrameData,
    seed: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    pairs: Pairs | None = None,
) -> None:
    """Render the missing frames; `progress(done, total)` is called after every shard.

    pairs: the (kind, colour) pairs that may occur in the rooms; None: all training pairs.
    """
    data.frames.mkdir(parents=True, exist_ok=True)
    shards = range(data.count // SHARD_FRAMES)
    missing = [shard for shard in shards if not shard_files(data.frames, shard)[1].exists()]
    done = len(shards) - len(missing)
    progress(done * SHARD_FRAMES, data.count)
    context = multiprocessing.get_context("spawn")
    for _ in shared_out(context, renderer, (data, seed, pairs), missing, workers):
        done += 1
        progress(done * SHARD_FRAMES, data.count)


def renderer(data: FrameData, seed: int, pairs: Pairs | None) -> Callable[[int], None]:
    """A function that renders a shard, given its number."""
    from navsim.world import World

    world = World()
    return lambda shard: make_shard(world, data.frames, seed, shard, pairs)

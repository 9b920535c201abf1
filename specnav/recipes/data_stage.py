# SPDX-License-Identifier: Apache-2.0
"""The data stage: shards of frames, made by as many processes as asked for; complete shards are never made again."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from pathlib import Path

from specnav.recipes.errors import TrainingError
from specnav.recipes.frames import SHARD_FRAMES, FrameData, Pairs, make_shard, shard_files
from specnav.recipes.loop import parent_lives


def make_frames(
    data: FrameData,
    seed: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    pairs: Pairs | None = None,
) -> None:
    """Render what is missing of the frames; `progress(done, total)` is called after every shard.

    pairs: the (kind, colour) that may stand in the rooms, all of training if None.
    """
    folder, count = data.frames, data.count
    folder.mkdir(parents=True, exist_ok=True)
    shards = range(count // SHARD_FRAMES)
    missing = [shard for shard in shards if not shard_files(folder, shard)[1].exists()]
    progress((len(shards) - len(missing)) * SHARD_FRAMES, count)
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    jobs = context.SimpleQueue()
    done = context.SimpleQueue()
    for shard in missing:
        jobs.put(shard)
    crew = [
        context.Process(target=_work, args=(str(folder), seed, pairs, jobs, done), daemon=True)
        for _ in range(min(workers, len(missing)))
    ]
    for _ in crew:
        jobs.put(None)
    try:
        for worker in crew:
            worker.start()
        for finished in range(1, len(missing) + 1):
            shard, problem = done.get()
            if problem:
                raise TrainingError(f"rendering shard {shard} failed: {problem}")
            progress((len(shards) - len(missing) + finished) * SHARD_FRAMES, count)
    finally:
        for worker in crew:
            worker.terminate()
            worker.join()


def _work(folder: str, seed: int, pairs: Pairs | None, jobs, done) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    import torch

    from navsim.world import World

    torch.set_num_threads(1)
    world = World()
    while (shard := jobs.get()) is not None and parent_lives():
        try:
            make_shard(world, Path(folder), seed, shard, pairs)
            done.put((shard, ""))
        except Exception as error:  # reported to the parent, which stops everything
            done.put((shard, f"{type(error).__name__}: {error}"))
            return

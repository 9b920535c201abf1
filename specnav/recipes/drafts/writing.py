# SPDX-License-Identifier: Apache-2.0
"""Generates the target's answers to all prompts, in one file per SHARD prompts, so that a resumed run repeats none.

On a CPU several single-threaded processes work in parallel; for a small model this is faster than one process with as
many threads.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path

from specnav.recipes.crew import shared_out
from specnav.recipes.drafts.network import DraftNetwork, Progress
from specnav.recipes.drafts.remote import RemoteTarget
from specnav.recipes.samples import ExitSample, load_samples, save_samples

SHARD, BULK_SHARD = 512, 12_288
"""Prompts per file; the second number is for a target that answers in bulk."""
SAMPLED_EVERY = 4
"""One in this many shards is sampled at temperature 1, the others are greedy."""
Shard = tuple[Sequence[ExitSample], Path, int, int, int]
"""(prompts, file for their answers, most new tokens, number of the shard, seed)."""


def write_answers(
    target: DraftNetwork | RemoteTarget,
    prompts: Sequence[ExitSample],
    new_tokens: int,
    seed: int,
    run: Path,
    workers: int,
    progress: Progress,
) -> list[ExitSample]:
    """Answers of at most `new_tokens` tokens, in the order of `prompts`; shards are kept in `run`.

    Raises TrainingError.
    """
    in_bulk = isinstance(target, DraftNetwork) and target.answers_in_bulk
    size = BULK_SHARD if in_bulk else SHARD
    parts = [prompts[at : at + size] for at in range(0, len(prompts), size)]
    name = "texts-bulk" if in_bulk else "texts"  # the two ways have shards of different size
    files = [run / f"{name}-{number:04d}.jsonl" for number in range(len(parts))]
    todo: list[Shard] = [
        (part, file, new_tokens, number, seed)
        for number, (part, file) in enumerate(zip(parts, files, strict=True))
        if not file.exists()
    ]
    done = len(prompts) - sum(len(shard[0]) for shard in todo)
    if workers == 1 or len(todo) < 2 or not isinstance(target, DraftNetwork) or target.device.type != "cpu":
        for shard in todo:

            def told(written: int, _: int, before: int = done) -> None:
                progress(before + written, len(prompts))

            done += _write(target, shard, told)
            progress(done, len(prompts))
    else:
        spoken_in = str(next(target.module.parameters()).dtype).removeprefix("torch.")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "specnav.recipes.drafts.task", "transformers.modeling_utils"])
        for written in shared_out(context, _writer, (target.loaded.path, spoken_in), todo, workers):
            done += written
            progress(done, len(prompts))
    return [text for file in files for text in load_samples(file)]


def _writer(path: str, dtype: str) -> Callable[[Shard], int]:
    target = DraftNetwork(path, dtype=dtype)
    return lambda shard: _write(target, shard)


def _write(
    target: DraftNetwork | RemoteTarget, shard: Shard, progress: Progress = lambda done, total: None
) -> int:
    """Answer one shard; returns the number of prompts."""
    prompts, file, new_tokens, number, seed = shard
    warm = 1.0 if number % SAMPLED_EVERY == SAMPLED_EVERY - 1 else 0.0
    save_samples(file, target.answer(prompts, new_tokens, warm, seed + number, progress))
    return len(prompts)

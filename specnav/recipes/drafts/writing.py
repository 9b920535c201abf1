# SPDX-License-Identifier: Apache-2.0
"""The target's answers to all prompts: a file for every SHARD of them, so that a stopped run writes none again.

On a CPU several processes write side by side, one thread each: a small model answers many prompts faster so than one
process with as many threads.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from specnav.recipes.drafts.network import DraftNetwork, Progress
from specnav.recipes.drafts.remote import RemoteTarget
from specnav.recipes.errors import TrainingError
from specnav.recipes.loop import parent_lives
from specnav.recipes.samples import ExitSample, load_samples, save_samples

SHARD, BULK_SHARD = 512, 12_288
"""Prompts a file; those of a target that answers in bulk."""
SAMPLED_EVERY = 4
"""One in this many shards is sampled at temperature 1, the others are greedy."""
Shard = tuple[Sequence[ExitSample], Path, int, int, int]
"""Prompts, the file of their answers, most new tokens, the shard's number, the seed."""


def write_answers(
    target: DraftNetwork | RemoteTarget,
    prompts: Sequence[ExitSample],
    new_tokens: int,
    seed: int,
    run: Path,
    workers: int,
    progress: Progress,
) -> list[ExitSample]:
    """Answers of at most `new_tokens` in the order of `prompts`; its shards lie in `run`. Raises TrainingError."""
    in_bulk = isinstance(target, DraftNetwork) and target.answers_in_bulk
    size = BULK_SHARD if in_bulk else SHARD
    parts = [prompts[at : at + size] for at in range(0, len(prompts), size)]
    name = "texts-bulk" if in_bulk else "texts"  # a run that goes on in the other way has shards of another size
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

            _write(target, *shard, told)
            done += len(shard[0])
            progress(done, len(prompts))
    else:
        spoken_in = str(next(target.module.parameters()).dtype).removeprefix("torch.")
        speaker = (target.loaded.path, spoken_in)
        _write_together(speaker, todo, workers, lambda written: progress(done + written, len(prompts)))
    return [text for file in files for text in load_samples(file)]


def _write(
    target: DraftNetwork | RemoteTarget,
    prompts: Sequence[ExitSample],
    file: Path,
    new_tokens: int,
    number: int,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> None:
    warm = 1.0 if number % SAMPLED_EVERY == SAMPLED_EVERY - 1 else 0.0
    save_samples(file, target.answer(prompts, new_tokens, warm, seed + number, progress))


def _write_together(speaker: tuple[str, str], shards: Sequence[Shard], workers: int, progress: Any) -> None:
    """Every process takes the next shard when it has written one; whatever happens, none goes on after this returns.

    speaker: the target's folder or id, and its number type.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "specnav.recipes.drafts.task", "transformers.modeling_utils"])
    waiting, reports = context.Queue(), context.Queue()
    for shard in shards:
        waiting.put(shard)
    crew = [
        context.Process(target=_work, args=(*speaker, waiting, reports), daemon=True)
        for _ in range(min(workers, len(shards)))
    ]
    try:
        for worker in crew:
            worker.start()
        left, written = len(shards), 0
        while left:
            try:
                count, error = reports.get(timeout=1.0)
            except queue.Empty:
                if all(worker.is_alive() for worker in crew):
                    continue
                raise TrainingError(
                    "a process that wrote answers died: run the same command again to go on"
                ) from None
            if error:
                raise TrainingError(error)
            left, written = left - 1, written + count
            progress(written)
    finally:
        for worker in crew:
            worker.terminate()
            worker.join()
        for line in (waiting, reports):
            line.cancel_join_thread()
            line.close()


def _work(path: str, dtype: str, waiting: Any, reports: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    torch.set_num_threads(1)
    try:
        target = DraftNetwork(path, dtype=dtype)
        while True:
            shard = waiting.get()
            _write(target, *shard)
            reports.put((len(shard[0]), ""))
    except Exception as error:  # reported to the parent, which stops everything
        reports.put((0, f"the target cannot write its answers: {error}"))


def _end_with_the_parent() -> None:
    """A command that was killed leaves no process behind who would write beside the next one."""
    while parent_lives():
        time.sleep(1.0)
    os._exit(1)

"""The target's answers to all prompts: a file for every SHARD of them, so that a stopped run writes none again.

On a CPU several processes write side by side, one thread each: a small model answers many prompts faster so than one
process with as many threads.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from training.drafts.network import Network, Progress
from training.drafts.remote import RemoteTarget
from training.exits.samples import Sample, load_samples, save_samples

SHARD = 512
SAMPLED_EVERY = 4
"""One in so many shards is sampled at temperature 1, the others are greedy."""


def write_answers(
    target: Network | RemoteTarget,
    prompts: Sequence[Sample],
    new_tokens: int,
    seed: int,
    run: Path,
    workers: int,
    progress: Progress,
) -> list[Sample]:
    """Answers of at most `new_tokens` in the order of `prompts`; its shards lie in `run`. Raises TrainingError."""
    shards = [prompts[at : at + SHARD] for at in range(0, len(prompts), SHARD)]
    files = [run / f"texts-{number:04d}.jsonl" for number in range(len(shards))]
    todo = [number for number, file in enumerate(files) if not file.exists()]
    done = sum(len(part) for number, part in enumerate(shards) if number not in todo)
    asked = {number: (shards[number], files[number], new_tokens, number, seed) for number in todo}
    if workers == 1 or len(todo) < 2 or not isinstance(target, Network) or target.device.type != "cpu":
        for number in todo:
            _write(target, *asked[number])
            done += len(shards[number])
            progress(done, len(prompts))
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "training.drafts.task", "transformers.modeling_utils"])
        with ProcessPoolExecutor(workers, context, _start, (target.loaded.path,)) as crew:
            try:
                written = {crew.submit(_write_here, *asked[number]): number for number in todo}
                for one in as_completed(written):
                    one.result()
                    done += len(shards[written[one]])
                    progress(done, len(prompts))
            except BaseException:
                crew.shutdown(cancel_futures=True)
                raise
    return [text for file in files for text in load_samples(file)]


def _write(
    target: Network | RemoteTarget, prompts: Sequence[Sample], file: Path, new_tokens: int, number: int, seed: int
) -> None:
    warm = 1.0 if number % SAMPLED_EVERY == SAMPLED_EVERY - 1 else 0.0
    save_samples(file, target.answer(prompts, new_tokens, warm, seed + number))


_target: Network | None = None


def _start(path: str) -> None:
    global _target
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    torch.set_num_threads(1)
    _target = Network(path)


def _write_here(prompts: Sequence[Sample], file: Path, new_tokens: int, number: int, seed: int) -> None:
    assert _target is not None, "the process was started with it"
    _write(_target, prompts, file, new_tokens, number, seed)

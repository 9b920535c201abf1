# SPDX-License-Identifier: Apache-2.0
"""The training loop of all stages: data-parallel processes, cosine schedule, checkpoints, resuming after a kill.

A *task* is a stage's model and its loss on a batch. Batches depend only on (seed, step, rank), so a resumed run uses
the same ones as an uninterrupted run. On a CPU every process has one thread; on a GPU there is one process.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import queue
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from specdec.settings_files import check_regular
from specdec.whole_files import replacing
from specnav.recipes.errors import TrainingError
from specnav.recipes.optimiser import MuonAdamW, gradients_of
from specnav.run_folder import claim

WARMUP = 60
_KEPT = {"model", "optimiser", "step", "seconds", "finished"}
Progress = Callable[[int, int, dict[str, float]], None]


@dataclass(frozen=True)
class LoopSettings:
    """Settings of one stage's loop.

    steps: number of updates. batch: rows per process. minutes: shortens the schedule to end after this time; 0: no.
    checkpoint_every: updates between two checkpoints. checkpoint_s: seconds between them instead; 0: no.
    """

    name: str
    folder: Path
    steps: int
    batch: int
    lr: float
    seed: int
    minutes: float = 0.0
    checkpoint_every: int = 200
    checkpoint_s: float = 0.0
    compile: bool = True

    @property
    def checkpoint(self) -> Path:
        """The file from which a killed run resumes."""
        return self.folder / f"{self.name}.ckpt"

    @property
    def log(self) -> Path:
        """The file of figures, one JSON object per line."""
        return self.folder / f"{self.name}.log"


class TrainingTask(Protocol):
    """A stage's model and loss.

    Optional methods: `goes_on(step)` is called when resuming after `step` updates. `at_end()` is called after the last
    update and raises if something is wrong. `at_checkpoint()` is called in the first process before a checkpoint is
    saved and returns figures for the log.
    """

    @property
    def model(self) -> nn.Module:
        """The module to train."""

    @property
    def loss(self) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
        """Maps a batch to (loss, detached scalars to report); "tokens", the number learnt, is reported per second."""

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Draw one batch."""


def schedule(progress: float, step: int) -> float:
    """Share of the full learning rate: linear warm-up, then cosine to 2 %."""
    return min(1.0, (step + 1) / WARMUP) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


def read_checkpoint(file: Path) -> dict:
    """A checkpoint's content. Raises TrainingError when it cannot be read."""
    try:
        check_regular(file)
        found = torch.load(file, map_location="cpu", weights_only=True)
        if missing := _KEPT - set(found):
            raise ValueError(f"without {', '.join(sorted(missing))}")
        return found
    except Exception as error:  # a damaged file makes torch raise almost anything
        raise TrainingError(f"{file} cannot be read: delete it to train this stage again") from error


def read_log(file: Path) -> list[dict[str, float]]:
    """The entries of a stage's log, ordered by update; for updates repeated after a kill, the last entry counts.

    A partial line is ignored. Raises TrainingError for a file that cannot be read.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.exists() else []
    except OSError as error:
        raise TrainingError(f"{file} cannot be read ({error.strerror or error})") from error
    noted: dict[int, dict[str, float]] = {}
    for line in lines:
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and "step" in said:
                noted[said["step"]] = said
    return [noted[step] for step in sorted(noted)]


def is_finished(settings: LoopSettings) -> bool:
    """Whether this stage is complete."""
    return settings.checkpoint.exists() and bool(read_checkpoint(settings.checkpoint)["finished"])


def fit(
    build: Callable[..., TrainingTask],
    arguments: tuple,
    settings: LoopSettings,
    workers: int,
    progress: Progress,
) -> int:
    """Train `build(*arguments, device)` in `workers` processes; returns the total number of updates.

    After SIGINT or a kill, another call resumes from the last checkpoint. Raises TrainingError, and UsageError if
    another process trains in this folder.
    """
    settings.folder.mkdir(parents=True, exist_ok=True)
    claim(settings.folder.resolve())  # a second process would write the same checkpoints
    if is_finished(settings):
        return int(read_checkpoint(settings.checkpoint)["step"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    workers = 1 if device == "cuda" else workers
    # A clean process without threads imports once for the workers of all stages. With a GPU, a process that has
    # imported must not be forked, because the imports may have initialised CUDA.
    context: SpawnContext | ForkServerContext = multiprocessing.get_context("spawn")
    if device == "cpu":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, build.__module__, "transformers.modeling_utils"])
    reports = context.Queue()
    with tempfile.TemporaryDirectory() as scratch:
        meeting = str(Path(scratch) / "meeting")
        crew = [
            context.Process(
                target=_work,
                args=(build, arguments, settings, rank, workers, device, meeting, reports),
                daemon=True,
            )
            for rank in range(workers)
        ]
        try:
            for worker in crew:
                worker.start()
            return _follow(crew, reports, settings, progress)
        finally:
            for worker in crew:
                worker.terminate()
                worker.join()


def _follow(crew: list, reports, settings: LoopSettings, progress: Progress) -> int:
    while True:
        try:
            kind, step, said = reports.get(timeout=1.0)
        except queue.Empty:
            dead = [worker.exitcode for worker in crew if worker.exitcode not in (None, 0)]
            if dead:
                raise TrainingError(
                    f"a process of stage {settings.name} died (exit {dead[0]}): run the same command again to continue"
                ) from None
            continue
        if kind == "error":
            raise TrainingError(f"stage {settings.name} failed at step {step}: {said}")
        if kind == "done":
            return step
        progress(step, settings.steps, said)


def _work(
    build, arguments, settings: LoopSettings, rank: int, world: int, device: str, meeting: str, reports
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    step = 0
    try:
        torch.set_num_threads(1 if device == "cpu" else os.cpu_count() or 1)
        if world > 1:
            torch.distributed.init_process_group("gloo", f"file://{meeting}", rank=rank, world_size=world)
        torch.manual_seed(settings.seed)
        task = build(*arguments, device)
        step = _run(task, settings, rank, world, device, reports)
    except Exception as error:  # reported to the parent, which stops everything
        reports.put(("error", step, f"{type(error).__name__}: {error}"))
        time.sleep(1.0)
        raise


def _run(task: TrainingTask, settings: LoopSettings, rank: int, world: int, device: str, reports) -> int:
    model = task.model.to(device).train()
    optimiser = MuonAdamW(model)
    first, spent = 0, 0.0
    if settings.checkpoint.exists():
        saved = read_checkpoint(settings.checkpoint)
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        first, spent = int(saved["step"]), float(saved["seconds"])
        if (goes_on := getattr(task, "goes_on", None)) is not None:
            goes_on(first)
    loss_of = torch.compile(task.loss, dynamic=False) if settings.compile else task.loss
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    started = time.monotonic() - spent
    tick = time.monotonic()
    seen = torch.zeros((), device=device)
    kept_at, noted = time.monotonic(), first
    step, finished = first, False
    while not finished:
        if not parent_lives():
            raise SystemExit(1)
        # Rank 0's clock is used by all processes, so that they end at the same step.
        clock = torch.tensor([time.monotonic() - started if rank == 0 else 0.0])
        if world > 1:
            torch.distributed.all_reduce(clock)
        done = max(
            (step + 1) / settings.steps, clock.item() / 60 / settings.minutes if settings.minutes else 0.0
        )
        generator = torch.Generator().manual_seed(((settings.seed * 1_000_003 + step) * 64 + rank) % 2**63)
        batch = tuple(part.to(device) for part in task.batch(generator, settings.batch))
        with torch.autocast(device, dtype=torch.bfloat16):
            loss, said = loss_of(*batch)
        seen += said.pop("tokens", seen.new_zeros(()))
        for weight in weights:
            weight.grad = None
        if not bool(torch.isfinite(loss.detach())):
            raise TrainingError(f"the loss of update {step + 1} is NaN or infinite; {_last_good(settings)}")
        loss.backward()
        _average_gradients(weights, world)
        optimiser.step(settings.lr * schedule(done, step))
        step += 1
        finished = done >= 1.0
        if finished and (check := getattr(task, "at_end", None)) is not None:
            check()
        if settings.checkpoint_s:
            keeps = finished or time.monotonic() - kept_at >= settings.checkpoint_s
        else:
            keeps = finished or step % settings.checkpoint_every == 0
        if rank == 0 and (step % 25 == 0 or keeps):
            now = time.monotonic()
            rate = settings.batch * world * (step - noted) / (now - tick)
            figures = {name: float(value) for name, value in said.items()} | {"rows_per_s": rate}
            if bool(seen):
                figures["tokens_per_s"] = float(seen) * world / (now - tick)
            noted, seen = step, torch.zeros_like(seen)
            if keeps and (measure := getattr(task, "at_checkpoint", None)) is not None:
                figures |= measure()
            with settings.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps({"step": step, "seconds": round(now - started, 1)} | figures) + "\n")
            reports.put(("step", step, figures))
            if keeps:
                _save(model, optimiser, settings, step, time.monotonic() - started, finished)
                kept_at = time.monotonic()
            tick = time.monotonic()
    if world > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if rank == 0:
        reports.put(("done", step, {}))
        reports.close()
        reports.join_thread()
    return step


def parent_lives() -> bool:
    """Whether the process that started this one still runs: workers must not outlive a killed command."""
    parent = multiprocessing.parent_process()
    return parent is None or parent.is_alive()


def _average_gradients(weights: list[nn.Parameter], world: int) -> None:
    if world == 1:
        return
    gradients = gradients_of(weights)
    flat = parameters_to_vector(gradients)
    torch.distributed.all_reduce(flat)
    vector_to_parameters(flat / world, gradients)


def _save(
    model: nn.Module, optimiser: MuonAdamW, settings: LoopSettings, step: int, seconds: float, finished: bool
):
    state = {
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "step": step,
        "seconds": seconds,
        "finished": finished,
    }
    if not all(bool(torch.isfinite(weight.detach()).all()) for weight in model.parameters()):
        raise TrainingError(f"weights are NaN or infinite after update {step}; {_last_good(settings)}")
    try:
        with replacing(settings.checkpoint) as partial:
            torch.save(state, partial)
    except (OSError, RuntimeError) as error:  # torch reports a full disk with either
        raise TrainingError(
            f"{settings.checkpoint} cannot be written ({error}): free some space, then run the same command again"
        ) from error


def _last_good(settings: LoopSettings) -> str:
    """A hint about the last good checkpoint, for error messages."""
    exists = settings.checkpoint.exists()
    kept = f"{settings.checkpoint} is unchanged" if exists else "no checkpoint was written yet"
    return f"{kept}: continue with a lower learning rate"

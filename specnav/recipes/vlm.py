# SPDX-License-Identifier: Apache-2.0
"""`specnav train vlm`: the default pair from nothing: frames, tower, cached image tokens, target, draft, model folders.

Every stage keeps its results in the output folder; the same command goes on where a killed one stopped. Ctrl-C ends it
cleanly with nothing lost but the updates since the last checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.recipes.architecture import (
    DRAFT_TEXT,
    TARGET_TEXT,
    TrainedVisionShape,
    export_weights,
    save_model_folder,
)
from specnav.recipes.data_stage import make_frames
from specnav.recipes.decoder import TrainableDecoder, inference_weights
from specnav.recipes.errors import TrainingError
from specnav.recipes.frames import SHARD_FRAMES
from specnav.recipes.loop import LoopSettings, fit, read_checkpoint
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.text_stage import FrameTextTask, cache_features
from specnav.recipes.vision_stage import VisionTask

FRAME_WIDTH = 192
TARGET_LAYERS = (2, 3)
DRAFT_LAYERS = (0, 1)
HELD_BACK = 1000


@dataclass(frozen=True)
class TrainVlmConfig:
    """What to train. Steps are updates of `workers` x `batch` rows; `minutes` shorten a stage's schedule (0: no).

    data_dir: default out/work. resume: go on from what data_dir holds; without it a data_dir that has checkpoints is
    refused.
    """

    out: Path = setting(REQUIRED, "Folder for nav-target and nav-draft.")
    data_dir: Path | None = setting(
        None, "Folder for frames, caches and checkpoints, which are reused.", flags=("--work",)
    )
    frames: int = setting(
        48_000, f"Camera frames to render, a multiple of {SHARD_FRAMES}.", 2 * SHARD_FRAMES, metavar="N"
    )
    tower_steps: int = 3200
    target_steps: int = 2200
    draft_steps: int = 1800
    tower_minutes: float = 0.0
    target_minutes: float = 0.0
    draft_minutes: float = 0.0
    batch: int = 32
    seed: int = same_as(TrainingSettings, "seed", default=7)
    workers: int = same_as(TrainingSettings, "workers", default=2)
    resume: bool = True
    compile: bool = True

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)

    def check(self) -> None:
        """Raises TrainingError for values that cannot work together."""
        if self.frames % SHARD_FRAMES:
            raise TrainingError(f"frames is {self.frames}: use a multiple of {SHARD_FRAMES}")
        for name in ("tower_steps", "target_steps", "draft_steps", "batch"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} is {getattr(self, name)}: use 1 or more")
        if self.batch % 2:
            raise TrainingError(f"batch is {self.batch}: use an even batch")
        if any(self.work.glob("*.ckpt")) and not self.resume:
            raise TrainingError(f"{self.work} holds checkpoints: use another folder, or resume")

    def within(self, minutes: float) -> TrainVlmConfig:
        """Its stages shortened so that the whole takes about so long, in the shares of the shipped pair's run."""
        return replace(
            self,
            tower_minutes=0.4 * minutes,
            target_minutes=0.45 * minutes,
            draft_minutes=0.15 * minutes,
        )

    @property
    def work(self) -> Path:
        """Where frames, caches and checkpoints live."""
        return self.data_dir if self.data_dir is not None else self.out / "work"


Progress = Callable[[str, int, int, str], None]
"""Called with the stage's name, how far it is, its whole, and a few figures."""


def train_vlm(config: TrainVlmConfig, progress: Progress | None = None) -> None:
    """Train the pair; shows progress bars unless `progress` is given. Raises TrainingError."""
    config.check()
    if progress is not None:
        _train(config, progress)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns) as bars:
        known: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int, figures: str) -> None:
            if stage not in known:
                known[stage] = bars.add_task(stage, figures="")
            bars.update(known[stage], completed=done, total=total, figures=figures)

        _train(config, show)


def _train(config: TrainVlmConfig, progress: Progress) -> None:
    work, started = config.work, time.monotonic()
    frames = work / "frames"
    make_frames(frames, config.seed, config.frames, config.workers, lambda d, n: progress("frames", d, n, ""))
    tower = loop_settings(config, "tower", config.tower_steps, 1.5e-3, config.tower_minutes)
    vision = (str(frames), config.frames, HELD_BACK, TrainedVisionShape())
    fit(VisionTask, vision, tower, config.workers, _said(progress, "tower"))
    features = work / "features.npy"
    if not features.exists():
        cache_features(
            frames, config.frames, tower.checkpoint, features, lambda d, n: progress("features", d, n, "")
        )
    target = loop_settings(config, "target", config.target_steps, 2e-3, config.target_minutes)
    fit(FrameTextTask, target_arguments(config), target, config.workers, _said(progress, "target"))
    save_target(config)
    draft = loop_settings(config, "draft", config.draft_steps, 2.5e-3, config.draft_minutes)
    fit(FrameTextTask, draft_arguments(config), draft, config.workers, _said(progress, "draft"))
    save_draft(config)
    note = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}
    note["minutes"] = round((time.monotonic() - started) / 60, 1)
    (config.out / "specnav.recipes.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def loop_settings(config: TrainVlmConfig, name: str, steps: int, lr: float, minutes: float) -> LoopSettings:
    """Settings of one stage."""
    return LoopSettings(
        name, config.work, steps, config.batch, lr, config.seed, minutes, compile=config.compile
    )


def target_arguments(config: TrainVlmConfig, start_from: Path | None = None) -> tuple:
    """Arguments of the target's TextTask."""
    work = config.work
    return (
        str(work / "frames"), config.frames, HELD_BACK, str(work / "features.npy"), TARGET_TEXT, TARGET_LAYERS,
        None, None if start_from is None else str(start_from), None,
    )  # fmt: skip


def draft_arguments(config: TrainVlmConfig, target: str = "target") -> tuple:
    """Arguments of the draft's TextTask: the target is its teacher."""
    work = config.work
    teacher = (str(work / f"{target}.ckpt"), TARGET_TEXT, TARGET_LAYERS)
    return (
        str(work / "frames"), config.frames, HELD_BACK, str(work / "features.npy"), DRAFT_TEXT, DRAFT_LAYERS,
        teacher, None, None,
    )  # fmt: skip


def save_target(config: TrainVlmConfig, name: str = "target") -> None:
    """Write nav-target from a checkpoint of the work folder."""
    decoder = TrainableDecoder(TARGET_TEXT, FRAME_WIDTH, *TARGET_LAYERS)
    _save(config, name, decoder, "nav-target")


def save_draft(config: TrainVlmConfig, name: str = "draft") -> None:
    """Write nav-draft from a checkpoint of the work folder."""
    decoder = TrainableDecoder(DRAFT_TEXT, FRAME_WIDTH, *DRAFT_LAYERS)
    _save(config, name, decoder, "nav-draft")


def _save(config: TrainVlmConfig, name: str, decoder: TrainableDecoder, folder: str) -> None:
    decoder.load_state_dict(read_checkpoint(config.work / f"{name}.ckpt")["model"])
    tower = torch.load(config.work / "features.tower.pt", weights_only=True)
    weights = export_weights(tower, inference_weights(decoder))
    save_model_folder(
        config.out / folder, TrainedVisionShape(out=decoder.shape.width), decoder.shape, weights
    )


def _said(progress: Progress, stage: str):
    def report(step: int, total: int, figures: dict[str, float]) -> None:
        progress(stage, step, total, "  ".join(f"{name} {value:.3g}" for name, value in figures.items()))

    return report

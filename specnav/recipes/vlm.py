# SPDX-License-Identifier: Apache-2.0
"""`specnav train vlm`: trains the default pair: frames, tower, cached image tokens, target, draft, model folders.

Every stage saves its results in the output folder, and the same command resumes a killed run. Ctrl-C ends it cleanly
and loses only the updates since the last checkpoint.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.recipes.architecture import DRAFT_TEXT, TARGET_TEXT
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import check_place, claim_run, keep_settings, roomy
from specnav.recipes.frames import SHARD_FRAMES, FrameData, make_frames
from specnav.recipes.loop import LoopSettings
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.stages import stages
from specnav.recipes.text_stage import FrameTextSpec, FrameTextTask, cache_features, save_trained
from specnav.recipes.vision_stage import VisionTask, tower_weights

HELD_BACK = 1000


@dataclass(frozen=True)
class TrainVlmConfig:
    """Settings of `specnav train vlm`.

    *_steps: updates of `workers` x `batch` rows. *_minutes: shortens a stage's schedule; 0: no. data_dir: default
    out/work.
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
    compile: bool = True

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)

    def check(self) -> None:
        """Raise TrainingError for invalid values."""
        if self.frames % SHARD_FRAMES:
            raise TrainingError(f"frames is {self.frames}: use a multiple of {SHARD_FRAMES}")
        for name in ("tower_steps", "target_steps", "draft_steps", "batch"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name} is {getattr(self, name)}: use 1 or more")
        if self.batch % 2:
            raise TrainingError(f"batch is {self.batch}: use an even batch")

    def within(self, minutes: float) -> TrainVlmConfig:
        """The config with stages shortened for a run of about `minutes`, in the proportions of the shipped pair."""
        return replace(
            self,
            tower_minutes=0.4 * minutes,
            target_minutes=0.45 * minutes,
            draft_minutes=0.15 * minutes,
        )

    @property
    def work(self) -> Path:
        """Folder of frames, caches and checkpoints."""
        return self.data_dir if self.data_dir is not None else self.out / "work"


def train_vlm(config: TrainVlmConfig) -> None:
    """Train the pair. Raises TrainingError, and UsageError if another process trains in the same folder."""
    config.check()
    for name in ("nav-target", "nav-draft"):
        check_place(config.out / name, ("config.json",), work=config.work)
    claim_run(config.work)
    free = ("out", "data_dir", "workers", "compile", "tower_minutes", "target_minutes", "draft_minutes")
    given = {name: value for name, value in asdict(config).items() if name not in free}
    with roomy(config.work):
        keep_settings(config.work, given, "--work")
    started, data = time.monotonic(), FrameData(config.work, config.frames, HELD_BACK)
    with stages() as shown:
        with shown.counted("frames", data.count) as progress:
            make_frames(data, config.seed, config.workers, progress)
        tower = _settings(config, "tower", config.tower_steps, 1.5e-3, config.tower_minutes)
        shown.train("tower", data, tower, config.workers, VisionTask)
        if not data.features.exists():
            weights = tower_weights(tower.checkpoint)
            with shown.counted("features", data.count) as progress:
                cache_features(data, weights, progress)
        target = _settings(config, "target", config.target_steps, 2e-3, config.target_minutes)
        spec = FrameTextSpec(data, TARGET_TEXT)
        shown.train("target", spec, target, config.workers, FrameTextTask)
        save_trained(spec, target.checkpoint, config.out / "nav-target")
        draft = _settings(config, "draft", config.draft_steps, 2.5e-3, config.draft_minutes)
        spec = FrameTextSpec(data, DRAFT_TEXT, teacher=target.checkpoint)
        shown.train("draft", spec, draft, config.workers, FrameTextTask)
        save_trained(spec, draft.checkpoint, config.out / "nav-draft")
    note = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(config).items()}
    note["minutes"] = round((time.monotonic() - started) / 60, 1)
    (config.out / "specnav.recipes.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


def _settings(config: TrainVlmConfig, name: str, steps: int, lr: float, minutes: float) -> LoopSettings:
    return LoopSettings(
        name, config.work, steps, config.batch, lr, config.seed, minutes, compile=config.compile
    )

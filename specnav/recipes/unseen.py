# SPDX-License-Identifier: Apache-2.0
"""Trains a draft that never saw some kinds and colours that its target knows, to show what a robot's bag can teach it.

The draft is trained from scratch, in rooms without them and on questions that never name them. It uses the target's
vision tower, which knows them; the draft only lacks the words for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdec.models import load_model
from specnav.recipes.architecture import DRAFT_TEXT, TARGET_TEXT, import_weights
from specnav.recipes.errors import TrainingError
from specnav.recipes.frames import SHARD_FRAMES, FrameData, Pairs, camera_jpeg, make_frames
from specnav.recipes.loop import LoopSettings, fit
from specnav.recipes.samples import ExitSample, load_samples, save_samples
from specnav.recipes.speaker import ModelSpeaker
from specnav.recipes.text_stage import FrameTextSpec, FrameTextTask, cache_features, save_trained

if TYPE_CHECKING:
    from navsim.episodes import Episode

LEAST_PAIRS = 3
"""Least number of remaining pairs for every kind and colour: a room has up to two objects similar to its target."""
NEW_TOKENS = 48
SPLIT = "train"
"""The split whose pairs of kind and colour the target was trained on, in rooms other than these episodes' rooms."""
Said = Callable[[str, int, int], None]


@dataclass(frozen=True)
class LeftOut:
    """Kinds and colours that the draft never sees. Raises TrainingError for unknown words, or if too little is left."""

    kinds: tuple[str, ...]
    colours: tuple[str, ...]

    def __post_init__(self) -> None:
        from navsim.kinds import COLOURS, KIND_BY_NAME

        for words, known, what in ((self.kinds, KIND_BY_NAME, "kind"), (self.colours, COLOURS, "colour")):
            if unknown := sorted(set(words) - set(known)):
                raise TrainingError(f"no {what} is called {unknown[0]!r}: use some of {', '.join(known)}")
        left = self.pairs
        for place, known, out in ((0, KIND_BY_NAME, self.kinds), (1, COLOURS, self.colours)):
            if any(sum(pair[place] == word for pair in left) < LEAST_PAIRS for word in set(known) - set(out)):
                raise TrainingError("too few pairs are left to furnish rooms: leave out fewer kinds and colours")

    @property
    def pairs(self) -> Pairs:
        """The training pairs (kind, colour) that the draft may see and be asked for."""
        from navsim.kinds import TRAIN_PAIRS

        return tuple(pair for pair in TRAIN_PAIRS if not self.hides(f"{pair[1]} {pair[0]}"))

    def hides(self, name: str) -> bool:
        """Whether a name like "pink lamp" has a kind or colour that is left out."""
        return not {*self.kinds, *self.colours}.isdisjoint(name.split())


@dataclass(frozen=True)
class FirstDraft:
    """Settings for training such a draft.

    work: folder for frames, features and checkpoints. minutes: shortens the schedule to end after this time; 0: no.
    """

    target: Path
    out: Path
    work: Path
    left_out: LeftOut
    frames: int = 8_000
    steps: int = 1600
    batch: int = 64
    minutes: float = 0.0
    seed: int = 11
    compile: bool = True

    def check(self) -> None:
        """Raise TrainingError for invalid values."""
        if self.frames < SHARD_FRAMES or self.frames % SHARD_FRAMES:
            raise TrainingError(f"frames is {self.frames}: use a multiple of {SHARD_FRAMES}")
        if self.steps < 1 or self.batch < 1 or self.minutes < 0 or self.seed < 0:
            raise TrainingError("steps and batch must be 1 or more, minutes and seed not below 0")


def lesson(config: FirstDraft) -> FrameTextSpec:
    """The draft's task: only the remaining pairs are asked for."""
    data = FrameData(config.work, config.frames)
    return FrameTextSpec(data, DRAFT_TEXT, config.work / "teacher.ckpt", config.left_out.pairs)


def train_first_draft(config: FirstDraft, said: Said) -> None:
    """Train the draft, or continue an interrupted run; an existing folder is not changed. Raises TrainingError."""
    config.check()
    if config.out.is_dir():
        return
    work, spec = config.work, lesson(config)
    make_frames(spec.data, config.seed, 1, lambda d, n: said("frames", d, n), spec.pairs)
    if not spec.data.features.exists():
        tower, teacher = import_weights(load_model(config.target, device="cpu", recorded=False).network.state_dict())
        unused = {"ground.weight": torch.zeros(1, TARGET_TEXT.width), "ground.bias": torch.zeros(1)}
        torch.save({"model": teacher | unused}, work / "teacher.ckpt")
        cache_features(spec.data, tower, lambda d, n: said("features", d, n), rescaled=False)
    settings = LoopSettings(
        "first-draft", work, config.steps, config.batch, 2.5e-3, config.seed, config.minutes, compile=config.compile
    )
    fit(FrameTextTask, (spec,), settings, 1, lambda step, total, _: said("first draft", step, total))
    save_trained(spec, settings.checkpoint, config.out)


def episodes(left_out: LeftOut, hidden: bool, first_seed: int, count: int) -> Iterator[Episode]:
    """The first `count` episodes from a seed on whose target has (hidden) or lacks a left-out kind or colour."""
    from navsim.episodes import make_episode

    every = (make_episode(seed, SPLIT) for seed in itertools.count(first_seed))
    return itertools.islice((one for one in every if left_out.hides(one.target_name) is hidden), count)


def walked(target: Path, chosen: list[Episode], folder: Path, file: Path) -> list[ExitSample]:
    """The target's greedy answers to the frames of its own walks through these episodes; cached in `file`."""
    if file.exists():
        return load_samples(file)
    from navsim.world import World
    from spec_vlm_nav.language.prompting import build_prompt
    from specnav.recipes.rollouts import JPEG_QUALITY, MAX_DECISIONS, roll_out

    speaker = ModelSpeaker(target)
    with World() as world:
        walks = roll_out(world, speaker, chosen, "frontier_search", MAX_DECISIONS)
    folder.mkdir(parents=True, exist_ok=True)
    prompts: list[ExitSample] = []
    for run in walks.runs:
        for frame in run.frames:
            picture = camera_jpeg(frame, JPEG_QUALITY)
            prompt = build_prompt(speaker.spec, speaker.network.loaded.tokenizer, run.episode.instruction, [picture])
            place = folder / f"{len(prompts):06d}.jpg"
            place.write_bytes(picture)
            origin = f"{run.episode.target_name}, episode {run.episode.seed}"
            prompts.append(ExitSample(prompt.ids, len(prompt.ids), (str(place.resolve()),), origin))
    said = speaker.network.answer(prompts, NEW_TOKENS)
    save_samples(file, said)
    return said

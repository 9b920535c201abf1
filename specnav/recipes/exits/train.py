# SPDX-License-Identifier: Apache-2.0
"""`specnav train exits`: data, training, figures, and a folder of adapters with its model card.

Intermediate results are kept in the run folder, so an interrupted run continues with the same settings.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec.models import LoadedModel, load_model
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specdec.verifying.exits import (
    ExitAdapters,
    Exits,
    choose_layers,
    fingerprint,
    save_exits,
    usual_width,
)
from specdec.verifying.hints.vocabulary import most_frequent
from specnav.recipes.cards import machine_name, model_card
from specnav.recipes.errors import TrainingError
from specnav.recipes.exits.curves import draw_curves
from specnav.recipes.exits.encoding import encode_conversations
from specnav.recipes.exits.measure import ExitFigures, exit_figures
from specnav.recipes.exits.reading import read_conversations
from specnav.recipes.exits.task import HARD_SHARE, ExitTask, ExitTaskSpec
from specnav.recipes.folders import appearing_at_once, begin_run, check_place, digest_of, roomy
from specnav.recipes.invented import own_answers, questions_about_python, questions_about_rooms
from specnav.recipes.loop import LoopSettings, read_checkpoint, read_log
from specnav.recipes.samples import ExitSample, fitting, load_samples, save_samples
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.stages import Stages, stages

DEFAULT_DATA = "default"
NAME = "exits"
HELD_BACK_SHARE, HELD_BACK_MOST = 0.05, 200


@dataclass(frozen=True)
class TrainExitsConfig:
    """Settings of `specnav train exits`. layers: parsed by `choose_layers`."""

    target: str = setting(REQUIRED, "Hugging Face folder or hub id; it is not changed.")
    out: Path = setting(REQUIRED, "Folder for the adapters, their model card and training curves.")
    run: Path = setting(REQUIRED, "Folder for samples and checkpoints; the same folder continues a run.")
    data: str = setting(
        DEFAULT_DATA,
        "ShareGPT or SpaceLLaVA conversations, or plain texts (JSON, JSONL).",
        shown="the target's own words",
    )
    layers: str = setting("all", "Exits after: all, every:K, or layers from 0 like 1,3,5.")
    width: int = setting(
        0, "Width of the bottleneck; 0: the published width for a model of this size.", 0, metavar="N"
    )
    epochs: float = setting(10.0, "How often each sample is used, on average.", 0.001, metavar="N")
    lr: float = setting(1e-4, "Highest learning rate.", 1e-9, metavar="X")
    minutes: float = same_as(
        TrainingSettings,
        "minutes",
        help="Shorten the updates to about this many minutes, beside the time for making data (see --samples); 0: no "
        "limit.",
    )
    samples: int = setting(2000, "With the default data: samples that the target generates.", 2, metavar="N")
    length: int = setting(1024, "Truncate samples to this many tokens.", 3, metavar="N")
    rows: int = setting(128, "Tokens per sample and update that are used.", 1, metavar="N")
    batch: int = setting(1, "Samples per update and process.", 1, metavar="N")
    seed: int = same_as(TrainingSettings, "seed")
    workers: int = same_as(TrainingSettings, "workers")
    tokens: int = same_as(TrainingSettings, "tokens")

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)


def train_exits(config: TrainExitsConfig) -> ExitFigures:
    """Train exits, or continue an interrupted run; returns their figures. Raises TrainingError and ModelError."""
    check_place(config.out, ("exits.json",), target=config.target, run=config.run)
    if config.data != DEFAULT_DATA and not Path(config.data).is_file():
        raise TrainingError(f"data file {config.data} does not exist: give a file, or {DEFAULT_DATA}")
    model = load_model(config.target)
    layers = choose_layers(config.layers, model.runner.layer_count)
    free = ("out", "run", "lr", "minutes", "workers")  # another learning rate after a NaN loss
    begin_run(config, free, backbone=repr(fingerprint(model)), data_digest=digest_of(_data_files(config)))
    with stages(config.workers) as shown:
        return _ExitsTraining(config, model, layers, shown).whole()


def _data_files(config: TrainExitsConfig) -> list[Path]:
    """The data file and the pictures that it names. Raises TrainingError."""
    if config.data == DEFAULT_DATA:
        return []
    file = Path(config.data)
    pictures = (picture for one in read_conversations(file) for picture in one.images)
    return [file, *dict.fromkeys(pictures)]


def frequent_tokens(samples: Iterable[ExitSample], most: int) -> tuple[int, ...]:
    """The target's most frequent ids in the samples, at most `most`, by frequency; exits evaluate these first."""
    counts = Counter(token for sample in samples for token in sample.ids[sample.start :])
    return tuple(token for token, _ in counts.most_common(most))


class _ExitsTraining:
    """The stages of one run, in order."""

    def __init__(
        self, config: TrainExitsConfig, model: LoadedModel, layers: tuple[int, ...], shown: Stages
    ) -> None:
        self.config, self.model, self.layers, self.shown = config, model, layers, shown
        self.width = config.width or usual_width(model.runner.hidden_size)
        self.workers = 1 if torch.cuda.is_available() else config.workers

    def whole(self) -> ExitFigures:
        """Run every stage."""
        learnt, held_back = self._samples()
        texts = load_samples(learnt)
        settings = self._loop_settings(len(texts))
        spec = ExitTaskSpec(
            self.config.target, learnt, self.layers, self.width, self.config.rows, self.config.tokens
        )
        steps, seconds = self.shown.train("training: exits", spec, settings, self.config.workers, ExitTask)
        exits = self._trained(settings.checkpoint)
        samples = load_samples(held_back)
        with self.shown.counted("measuring", len(samples)) as progress:
            figures = exit_figures(exits, samples, progress)
        exits.agreement.update(figures.agreement)
        exits.frequent = frequent_tokens(texts, most_frequent(self.model.vocab_size))
        config, model = self.config, self.model
        card = model_card(
            "exits", config=config, workers=self.workers, target=Path(model.path).name, width=self.width,
            layers=self.layers, depth=model.runner.layer_count, parameters=exits.parameter_count,
            target_parameters=model.parameter_count,
            data="" if config.data == DEFAULT_DATA else Path(config.data).name, sees=model.is_multimodal,
            samples=len(texts), held_back=len(samples), hard_share=HARD_SHARE, steps=steps, minutes=seconds / 60,
            machine=machine_name(config.workers), figures=figures,
        )  # fmt: skip
        if not (log := read_log(settings.log)):
            raise TrainingError(f"{settings.log} has no curves: delete the run folder and train again")
        curves = draw_curves(log, self.layers)
        with roomy(self.config.out), appearing_at_once(self.config.out) as folder:
            save_exits(folder, exits)
            (folder / "README.md").write_text(card, encoding="utf-8")
            (folder / "curves.svg").write_text(curves, encoding="utf-8")
        return figures

    def _samples(self) -> tuple[Path, Path]:
        """(file of training samples, file of held-back samples)."""
        files = self.config.run / "samples.jsonl", self.config.run / "held-back.jsonl"
        if not all(file.exists() for file in files):
            with roomy(self.config.run):
                halves = self._invented() if self.config.data == DEFAULT_DATA else self._read()
            for file, samples in zip(files, halves, strict=True):
                save_samples(file, samples)
        return files

    def _read(self) -> tuple[list[ExitSample], list[ExitSample]]:
        found = read_conversations(Path(self.config.data))
        samples = encode_conversations(self.model, found, self.config.length)
        random.Random(f"exits/{self.config.seed}/held back").shuffle(samples)
        if len(samples) < 2:
            raise TrainingError(
                f"{self.config.data} has only one sample: give at least two, because one is held back"
            )
        count = _held_back(len(samples))
        return samples[count:], samples[:count]

    def _invented(self) -> tuple[list[ExitSample], list[ExitSample]]:
        config, count = self.config, self.config.samples
        held = _held_back(count)
        if self.model.is_multimodal:
            with self.shown.counted("rooms", count + held) as progress:
                folder = config.run / "frames"
                asked = questions_about_rooms(self.model, count + held, folder, config.seed, progress)
            halves = asked[held:], asked[:held]
        else:
            halves = questions_about_python(self.model, count, held, config.seed)
        made = []
        for title, half in (
            ("the target writes", halves[0]),
            ("the target writes, to be held back", halves[1]),
        ):
            with self.shown.counted(title, len(half)) as progress:
                made.append(fitting(own_answers(self.model, half, config.seed, progress), config.length))
        if not all(made):
            raise TrainingError(f"nothing is left of the data within {config.length} tokens: give a larger length")
        return made[0], made[1]

    def _loop_settings(self, samples: int) -> LoopSettings:
        config = self.config
        return LoopSettings(
            name=NAME,
            folder=config.run,
            steps=max(1, math.ceil(config.epochs * samples / (config.batch * self.workers))),
            batch=config.batch,
            lr=config.lr,
            seed=config.seed,
            minutes=config.minutes,
            checkpoint_every=100,
            compile=False,
        )

    def _trained(self, file: Path) -> Exits:
        """The exits of a checkpoint, with weights rounded as on disk, so that the saved exits are measured."""
        weights = read_checkpoint(file)["model"]
        adapters = ExitAdapters(len(self.layers), self.model.runner.hidden_size, self.width)
        adapters.load_state_dict({name: value.half().float() for name, value in weights.items()})
        return Exits(self.model, adapters, self.layers)


def _held_back(samples: int) -> int:
    return max(1, min(round(HELD_BACK_SHARE * samples), HELD_BACK_MOST))

# SPDX-License-Identifier: Apache-2.0
"""`specnav train text`: from this interpreter's library to two Hugging Face folders with their model cards.

The draft is made of layers of the target, and distilled as by `specnav train draft`.

Intermediate results are kept in the run folder, so an interrupted run continues with the same settings.
"""

from __future__ import annotations

import json
import math
import platform
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from specdec.options import DecodingOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.recipes.cards import machine_name, model_card
from specnav.recipes.corpus import Corpus, invent_questions, library_folder, read_corpus
from specnav.recipes.drafts.config import Sources, TrainDraftConfig
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.train import train_draft
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import appearing_at_once, begin_run
from specnav.recipes.loop import LoopSettings
from specnav.recipes.samples import ExitSample, read_questions, save_samples
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.stages import Stages, stages
from specnav.recipes.text.measure import PairFigures, mean_loss, pair_figures
from specnav.recipes.text.models import ANSWER_TOKENS, TARGET, LlamaShape, save_folder, trained_model
from specnav.recipes.text.repeats import LONGEST_PERIOD, SHORTEST_LOOP
from specnav.recipes.text.rows import encode_part, encode_questions, load_stream, save_encoded
from specnav.recipes.text.task import TextTask, TextTaskSpec
from specnav.recipes.text.vocabulary import learn_tokenizer

TARGET_NAME, DRAFT_NAME = "text-target", "text-draft"
TARGET_RATE, REPAIR_RATE, DRAFT_RATE = 5e-3, 5e-4, 3e-3
LONGEST_PROMPT = 128
MEASURED_PROMPT = 640
DRAFT_LENGTH, DRAFT_TOKENS, DRAFT_ROWS, GIVEN_SHARE = 640, 96, 12, 0.05
"""Of the draft's training: tokens of a row and of an answer, rows per update, share of rows with given texts."""
PROMPTS_A_MINUTE = 200
"""For the draft, in a run that is shortened; one of two hours has as many prompts as one that is not."""
HELD_BACK = "questions of held-back files"


@dataclass(frozen=True)
class TextSchedule:
    """The length of every stage. *_steps: updates. *_minutes: shortens the stage to end after this time; 0: no.

    repairs: rounds in which the target unlearns loops in its own greedy answers. rows: per update, over all processes.
    prompts: that the target answers for the draft.
    """

    target_steps: int = 4000
    target_minutes: float = 0.0
    repairs: int = 2
    repair_steps: int = 120
    repair_texts: int = 1024
    repair_minutes: float = 0.0
    draft_steps: int = 2400
    draft_minutes: float = 0.0
    prompts: int = 24_000
    rows: int = 24
    length: int = 256
    validation_rows: int = 256
    measured: int = 256

    @classmethod
    def within(cls, minutes: float) -> TextSchedule:
        """The usual stages, shortened for a run of about `minutes` (0: not); generating and measuring take a third."""
        if not minutes:
            return cls()
        return cls(
            target_minutes=0.36 * minutes,
            repair_minutes=0.03 * minutes,
            draft_minutes=0.25 * minutes,
            prompts=min(math.ceil(PROMPTS_A_MINUTE * minutes), cls.prompts),
        )


@dataclass(frozen=True)
class TrainTextConfig:
    """Settings of `specnav train text`. The pair is measured on questions about held-back files and on `questions`."""

    out: Path = setting(REQUIRED, "Folder for text-target and text-draft.")
    run: Path = setting(REQUIRED, "Folder for checkpoints; the same folder continues a run.")
    seed: int = same_as(TrainingSettings, "seed")
    workers: int = same_as(TrainingSettings, "workers", default=2)
    vocabulary: int = 3072
    target: LlamaShape = TARGET
    draft: str = "layers:0,1,7"
    schedule: TextSchedule = field(default_factory=TextSchedule)
    gamma: int = DecodingOptions.gamma
    questions: tuple[Path, ...] = setting(
        (), "A .jsonl file of questions to measure; may be given several times."
    )
    library: Path | None = setting(None, "Python sources to learn from.", shown="this interpreter's library")
    compile: bool = True

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)


@dataclass(frozen=True)
class TextResult:
    """The result of a run. *_losses: nats per token on held-back files, by kind of text. figures: by question set."""

    target: Path
    draft: Path
    target_losses: dict[str, float]
    draft_losses: dict[str, float]
    figures: dict[str, PairFigures]


def train_text(config: TrainTextConfig) -> TextResult:
    """Train the pair, or continue an interrupted run. Raises TrainingError."""
    asked = {HELD_BACK: None} | {file.stem: read_questions(file) for file in config.questions}
    corpus = read_corpus(config.library or library_folder())
    begin_run(config, ("out", "questions", "run"), python=platform.python_version())
    return _TextTraining(config, corpus).whole(asked)


class _TextTraining:
    """The stages of one run, in order."""

    shown: Stages

    def __init__(self, config: TrainTextConfig, corpus: Corpus) -> None:
        self.config, self.corpus = config, corpus
        self.schedule, self.run = config.schedule, config.run
        self.encoded = self.run / "corpus.npz"
        self.workers = 1 if torch.cuda.is_available() else config.workers
        self.tokenizer = self._tokenizer()
        self.end = self.tokenizer.eos_token_id

    def whole(self, asked: dict[str, list[str] | None]) -> TextResult:
        """Run every stage."""
        self._encode()
        with stages(self.config.workers) as self.shown:
            target, made = self._target()
        draft = train_draft(self._draft(target)).folder
        with stages(self.config.workers) as self.shown:
            return self._finish(target, draft, made, asked)

    def _target(self) -> tuple[Path, tuple[int, float]]:
        """(the trained target's folder, (updates, seconds))."""
        plan = self.schedule
        spec = TextTaskSpec(self.encoded, self.config.target, len(self.tokenizer), self.end, plan.length)
        spent = [self._train("target", TARGET_RATE, plan.target_steps, plan.target_minutes, spec)]
        taught = self.run / "target.ckpt"
        for index in range(1, plan.repairs + 1):
            name = f"repair-{index}"
            lesson = replace(spec, start_from=taught, own=self._own_texts(name, taught))
            spent.append(self._train(name, REPAIR_RATE, plan.repair_steps, plan.repair_minutes, lesson))
            taught = self.run / f"{name}.ckpt"
        return self._saved(taught), (sum(steps for steps, _ in spent), sum(seconds for _, seconds in spent))

    def _draft(self, target: Path) -> TrainDraftConfig:
        config, plan, sources = self.config, self.schedule, Sources()
        if config.library is not None:  # the default data are about this interpreter's library
            asked = self.run / "questions.jsonl"
            questions = invent_questions(self.corpus.train, plan.prompts, random.Random(f"{config.seed} draft"))
            lines = ({"question_id": n, "turns": [question]} for n, question in enumerate(questions))
            asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            sources = Sources(questions=(asked,))
        return TrainDraftConfig(
            config.draft, self.run / DRAFT_NAME, self.run / "draft", str(target), sources=sources,
            prompts=plan.prompts, gamma=config.gamma, length=DRAFT_LENGTH, new_tokens=DRAFT_TOKENS,
            steps=plan.draft_steps, minutes=plan.draft_minutes, batch=max(DRAFT_ROWS // self.workers, 1),
            lr=DRAFT_RATE, on_policy=0.0, given_share=GIVEN_SHARE, reverse=0.0, seed=config.seed,
            workers=config.workers, compile=config.compile,
        )  # fmt: skip

    def _tokenizer(self):
        from transformers import AutoTokenizer

        folder = self.run / "tokenizer"
        if not folder.exists():
            part = self.corpus.train
            texts = [*part.documents, *(talk.question for talk in part.talks)]
            with appearing_at_once(folder) as building:
                learn_tokenizer(texts, self.config.vocabulary).save_pretrained(building)
        return AutoTokenizer.from_pretrained(folder)

    def _encode(self) -> None:
        if not self.encoded.exists():
            halves = (
                encode_part(self.tokenizer, part) for part in (self.corpus.train, self.corpus.validation)
            )
            save_encoded(self.encoded, *halves)

    def _saved(self, checkpoint: Path) -> Path:
        """The target's folder with the weights of a checkpoint, as they are shipped."""
        folder = self.run / TARGET_NAME
        model = trained_model(self.config.target, len(self.tokenizer), self.end, checkpoint)
        save_folder(folder, model, self.tokenizer)
        return folder

    def _train(
        self, name: str, lr: float, steps: int, minutes: float, spec: TextTaskSpec
    ) -> tuple[int, float]:
        settings = LoopSettings(
            name=name,
            folder=self.run,
            steps=steps,
            batch=max(self.schedule.rows // self.workers, 1),
            lr=lr,
            seed=self.config.seed,
            minutes=minutes,
            checkpoint_every=100,
            compile=self.config.compile,
        )
        return self.shown.train(f"training: {name}", spec, settings, self.workers, TextTask)

    def _own_texts(self, name: str, checkpoint: Path) -> Path:
        """File of the target's greedy answers to invented questions."""
        file, count = self.run / f"own-{name}.jsonl", self.schedule.repair_texts
        if not file.exists():
            questions = invent_questions(self.corpus.train, count, random.Random(f"{self.config.seed} own-{name}"))
            longest = min(LONGEST_PROMPT, self.schedule.length // 2)
            target = DraftNetwork(str(self._saved(checkpoint)))
            with self.shown.counted(f"writing: {name}", count) as progress:
                prompts = self._prompts(questions, longest)
                save_samples(file, target.answer(prompts, self.schedule.length - longest, progress=progress))
        return file

    def _prompts(self, questions: Sequence[str], longest: int) -> list[ExitSample]:
        encoded = encode_questions(self.tokenizer, questions, longest)
        return [ExitSample(tuple(ids), len(ids)) for ids in encoded]

    def _finish(
        self, target_folder: Path, draft_folder: Path, made: tuple[int, float], asked: dict[str, list[str] | None]
    ) -> TextResult:
        """Measure the pair, write the target's card, and put both folders in their place."""
        config, (steps, seconds) = self.config, made
        target, draft = DraftNetwork(str(target_folder)), DraftNetwork(str(draft_folder))
        losses, draft_losses = self._losses(target.module), self._losses(draft.module)
        figures = {name: self._figures(name, questions, target, draft) for name, questions in asked.items()}
        card = model_card(
            "text", steps=steps, seconds=seconds, losses=losses, draft_losses=draft_losses, figures=figures,
            config=config, corpus=self.corpus, vocabulary=len(self.tokenizer),
            tokens=sum(len(load_stream(self.encoded, f"train_{name}").ids) for name in ("files", "talks")),
            parameters=target.module.num_parameters(), python=platform.python_version(),
            machine=machine_name(config.workers), answer_tokens=ANSWER_TOKENS, longest_period=LONGEST_PERIOD,
            shortest_loop=SHORTEST_LOOP,
        )  # fmt: skip
        (target_folder / "README.md").write_text(card, encoding="utf-8")
        places = config.out / TARGET_NAME, config.out / DRAFT_NAME
        for folder, place in zip((target_folder, draft_folder), places, strict=True):
            with appearing_at_once(place) as building:
                shutil.copytree(folder, building, dirs_exist_ok=True)
        return TextResult(*places, losses, draft_losses, figures)

    def _losses(self, model) -> dict[str, float]:
        found = {}
        for title, name in (("files", "validation_files"), ("questions and answers", "validation_talks")):
            rows = load_stream(self.encoded, name).windows(self.schedule.length)
            found[title] = mean_loss(model, rows[:: max(len(rows) // self.schedule.validation_rows, 1)])
        return found

    def _figures(
        self, name: str, questions: list[str] | None, target: DraftNetwork, draft: DraftNetwork
    ) -> PairFigures:
        if questions is None:
            count = min(self.schedule.measured, len(self.corpus.validation.talks))
            picked = random.Random(self.config.seed).sample(self.corpus.validation.talks, count)
            questions = [talk.question for talk in picked]
        prompts = self._prompts(questions, MEASURED_PROMPT)
        with self.shown.counted(f"measuring: {name}", len(prompts)) as progress:
            texts = target.answer(prompts, ANSWER_TOKENS, progress=progress)
            return pair_figures(draft, texts, self.config.gamma)


# SPDX-License-Identifier: Apache-2.0
"""`specnav train text`: from this interpreter's library to two Hugging Face folders with their model cards.

Intermediate results are kept in the run folder, so an interrupted run continues with the same settings.
"""

from __future__ import annotations

import platform
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from specdec.options import DecodingOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.recipes.cards import machine_name, model_card
from specnav.recipes.corpus import Corpus, invent_questions, library_files, library_folder, read_corpus
from specnav.recipes.drafts.network import DraftNetwork, Progress
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import (
    appearing_at_once,
    begin_run,
    check_place,
    digest_of,
    replacing_model,
    roomy,
)
from specnav.recipes.loop import LoopSettings
from specnav.recipes.samples import ExitSample, read_questions, save_samples
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.stages import Stages, stages
from specnav.recipes.text.measure import PairFigures, mean_loss, pair_figures
from specnav.recipes.text.models import ANSWER_TOKENS, DRAFT, TARGET, LlamaShape, save_folder, trained_model
from specnav.recipes.text.repeats import LONGEST_PERIOD, SHORTEST_LOOP
from specnav.recipes.text.rows import encode_part, encode_questions, load_stream, save_encoded
from specnav.recipes.text.task import TextTask, TextTaskSpec
from specnav.recipes.text.vocabulary import learn_tokenizer

TARGET_NAME, DRAFT_NAME = "text-target", "text-draft"
TARGET_RATE, REPAIR_RATE, DRAFT_RATE = 5e-3, 5e-4, 6e-3
REPAIR_SHARE, DRAFT_SHARE, SAMPLED_SHARE = 0.5, 0.7, 0.25
"""Share of rows with the target's own texts during repair and during the draft's training; share of sampled texts."""
TEMPERATURE = 0.8
LONGEST_PROMPT = 128
MEASURED_PROMPT = 640
HELD_BACK = "questions of held-back files"


@dataclass(frozen=True)
class TextSchedule:
    """The length of every stage. *_steps: updates. *_minutes: shortens the stage to end after this time; 0: no.

    repairs: rounds in which the target unlearns loops in its own greedy answers. rows: per update, over all processes.
    own_texts: number of the target's texts for the draft.
    """

    target_steps: int = 4000
    target_minutes: float = 0.0
    repairs: int = 2
    repair_steps: int = 120
    repair_texts: int = 1024
    repair_minutes: float = 0.0
    draft_steps: int = 3000
    draft_minutes: float = 0.0
    own_texts: int = 6144
    rows: int = 24
    length: int = 256
    validation_rows: int = 256
    measured: int = 256

    @classmethod
    def within(cls, minutes: float) -> TextSchedule:
        """The usual stages, shortened for a run of about `minutes`; generating and measuring take about a tenth."""
        return cls(target_minutes=0.52 * minutes, repair_minutes=0.03 * minutes, draft_minutes=0.3 * minutes)


@dataclass(frozen=True)
class TrainTextConfig:
    """Settings of `specnav train text`. The pair is measured on questions about held-back files and on `questions`."""

    out: Path = setting(REQUIRED, "Folder for text-target and text-draft.")
    run: Path = setting(REQUIRED, "Folder for checkpoints; the same folder continues a run.")
    seed: int = same_as(TrainingSettings, "seed")
    workers: int = same_as(TrainingSettings, "workers", default=2)
    vocabulary: int = 3072
    target: LlamaShape = TARGET
    draft: LlamaShape = DRAFT
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
    for name in (TARGET_NAME, DRAFT_NAME):
        check_place(config.out / name, ("config.json",), run=config.run)
    asked = {HELD_BACK: None} | {file.stem: read_questions(file) for file in config.questions}
    corpus = read_corpus(config.library or library_folder())
    also = {"python": platform.python_version()}
    if config.library:
        also["data_digest"] = digest_of(config.library / name for name in library_files(config.library))
    begin_run(config, ("out", "questions", "run"), **also)
    with stages(config.workers) as shown:
        return _TextTraining(config, corpus, shown).whole(asked)


class _TextTraining:
    """The stages of one run, in order."""

    def __init__(self, config: TrainTextConfig, corpus: Corpus, shown: Stages) -> None:
        self.config, self.corpus, self.shown = config, corpus, shown
        self.schedule, self.run = config.schedule, config.run
        self.encoded = self.run / "corpus.npz"
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.tokenizer = self._tokenizer()
        self.end = self.tokenizer.eos_token_id

    def whole(self, asked: dict[str, list[str] | None]) -> TextResult:
        """Run every stage."""
        self._encode()
        plan = self.schedule
        first = self._spec(self.config.target)
        spent = [self._train("target", TARGET_RATE, plan.target_steps, plan.target_minutes, first)]
        taught = self.run / "target.ckpt"
        for index in range(1, plan.repairs + 1):
            taught, more = self._repair(index, taught)
            spent.append(more)
        own = self._own_texts("own", taught, plan.own_texts, SAMPLED_SHARE)
        lesson = replace(
            self._spec(self.config.draft),
            own=own,
            own_share=DRAFT_SHARE,
            teacher=(self.config.target, taught),
        )
        learnt = self._train("draft", DRAFT_RATE, plan.draft_steps, plan.draft_minutes, lesson)
        made = sum(steps for steps, _ in spent), sum(seconds for _, seconds in spent)
        folders = self._saved(self.config.target, taught), self._saved(self.config.draft, self.run / "draft.ckpt")
        return self._finish(*folders, made, learnt, asked)

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

    def _saved(self, shape: LlamaShape, checkpoint: Path) -> Path:
        """The model folder of a stage's checkpoint, with weights as they are shipped."""
        folder = checkpoint.with_suffix("")
        save_folder(folder, trained_model(shape, len(self.tokenizer), self.end, checkpoint), self.tokenizer)
        return folder

    def _spec(self, shape: LlamaShape) -> TextTaskSpec:
        return TextTaskSpec(self.encoded, shape, len(self.tokenizer), self.end, self.schedule.length)

    def _train(
        self, name: str, lr: float, steps: int, minutes: float, spec: TextTaskSpec
    ) -> tuple[int, float]:
        workers = 1 if self.device == "cuda" else self.config.workers
        settings = LoopSettings(
            name=name,
            folder=self.run,
            steps=steps,
            batch=max(self.schedule.rows // workers, 1),
            lr=lr,
            seed=self.config.seed,
            minutes=minutes,
            checkpoint_every=100,
            compile=self.config.compile,
        )
        return self.shown.train(f"training: {name}", spec, settings, workers, TextTask)

    def _repair(self, index: int, start_from: Path) -> tuple[Path, tuple[int, float]]:
        name, plan = f"repair-{index}", self.schedule
        own = self._own_texts(f"own-{name}", start_from, plan.repair_texts, 0.0)
        lesson = replace(
            self._spec(self.config.target), start_from=start_from, own=own, own_share=REPAIR_SHARE
        )
        spent = self._train(name, REPAIR_RATE, plan.repair_steps, plan.repair_minutes, lesson)
        return self.run / f"{name}.ckpt", spent

    def _own_texts(self, name: str, checkpoint: Path, count: int, sampled: float) -> Path:
        """File of the target's answers to invented questions; `sampled` is the share that is not greedy."""
        file = self.run / f"{name}.jsonl"
        if not file.exists():
            questions = invent_questions(
                self.corpus.train, count, random.Random(f"{self.config.seed} {name}")
            )
            longest = min(LONGEST_PROMPT, self.schedule.length // 2)
            prompts, room = self._prompts(questions, longest), self.schedule.length - longest
            target = _network(self._saved(self.config.target, checkpoint))
            greedy = count - round(count * sampled)
            texts: list[ExitSample] = []
            with self.shown.counted(f"writing: {name}", count) as progress:
                for part, warmth in ((prompts[:greedy], 0.0), (prompts[greedy:], TEMPERATURE)):
                    told = partial(_told, progress, len(texts), count)
                    texts += target.answer(part, room, warmth, self.config.seed, told)
            save_samples(file, texts)
        return file

    def _prompts(self, questions: Sequence[str], longest: int) -> list[ExitSample]:
        encoded = encode_questions(self.tokenizer, questions, longest)
        return [ExitSample(tuple(ids), len(ids)) for ids in encoded]

    def _finish(self, target_folder: Path, draft_folder: Path, made, learnt, asked) -> TextResult:
        target, draft = _network(target_folder), _network(draft_folder)
        losses = {role: self._losses(one.module) for role, one in (("target", target), ("draft", draft))}
        figures = {name: self._figures(name, questions, target, draft) for name, questions in asked.items()}
        result = TextResult(
            self.config.out / TARGET_NAME,
            self.config.out / DRAFT_NAME,
            losses["target"],
            losses["draft"],
            figures,
        )
        config, vocabulary = self.config, len(self.tokenizer)
        tokens = sum(len(load_stream(self.encoded, f"train_{name}").ids) for name in ("files", "talks"))
        for role, other, shape, model, folder, (steps, seconds) in (
            ("target", "draft", config.target, target, target_folder, made),
            ("draft", "target", config.draft, draft, draft_folder, learnt),
        ):
            card = model_card(
                "text", role=role, other=other, shape=shape, steps=steps, seconds=seconds, losses=losses,
                figures=figures, config=config, plan=self.schedule, corpus=self.corpus, tokens=tokens,
                vocabulary=vocabulary, parameters=model.module.num_parameters(), python=platform.python_version(),
                machine=machine_name(config.workers), own_share=DRAFT_SHARE, answer_tokens=ANSWER_TOKENS,
                longest_period=LONGEST_PERIOD, shortest_loop=SHORTEST_LOOP,
            )  # fmt: skip
            with roomy(config.out), replacing_model(config.out / f"text-{role}", self.shown.say) as building:
                shutil.copytree(folder, building, dirs_exist_ok=True)
                (building / "README.md").write_text(card, encoding="utf-8")
        return result

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


def _network(folder: Path) -> DraftNetwork:
    return DraftNetwork(str(folder), dtype="float32")


def _told(progress: Progress, before: int, count: int, done: int, _: int) -> None:
    progress(before + done, count)

# SPDX-License-Identifier: Apache-2.0
"""`specnav train draft`: prompts, the target's answers, training, figures, and a draft's folder with its model card.

Intermediate results are kept in the run folder, so an interrupted run continues with the same settings.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec.link.channel import connect
from specdec.models import LoadedModel, load_model
from specdec.models.digest import files_digest
from specnav.recipes.cards import machine_name, model_card
from specnav.recipes.drafts.config import LAYERS, TrainDraftConfig
from specnav.recipes.drafts.curve import AcceptancePoint, read_curve, write_curve
from specnav.recipes.drafts.data.assistant import report_request
from specnav.recipes.drafts.data.self_asked import self_asked
from specnav.recipes.drafts.data.sources import gather, question_prompts, text_files
from specnav.recipes.drafts.figures import DraftFigures, draft_figures, sampled_figures
from specnav.recipes.drafts.gpu_task import distil_task, trains_on_device
from specnav.recipes.drafts.network import DraftNetwork, check_same_vocabulary
from specnav.recipes.drafts.remote import RemoteTarget
from specnav.recipes.drafts.start import add_companions, kept_dtype, save_sharing, start_folder
from specnav.recipes.drafts.task import RENEWED_EVERY, DistilSpec, DistilTask
from specnav.recipes.drafts.teacher import Teacher
from specnav.recipes.drafts.writing import SHARD, write_answers
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import begin_run, check_place, digest_of, replacing_model, roomy
from specnav.recipes.loop import LoopSettings, is_finished, read_checkpoint
from specnav.recipes.samples import ExitSample, load_samples, save_samples
from specnav.recipes.stages import Stages, stages

NAME = "draft"
MEASURED_SAMPLED = 64
CHECKPOINT_EVERY = 50
"""Updates between two checkpoints of a run without the draft's own texts."""
HALF_FROM = 50_000_000
"""Least number of parameters for a target to compute in bfloat16 on a CPU, which would make a smaller one slower."""
CHECKPOINT_S = 30.0
"""Seconds between two checkpoints if all of the training is on a GPU."""
ARTICLE_EVERY, ARTICLE_TOKENS, ARTICLE_WARMTH = 16, 200, 0.8
"""One article is generated per this many prompts, with at most this many tokens, at this temperature."""
BULK_ARTICLE_TOKENS, ARTICLE_PROMPT = 640, 64
"""Tokens of an article, and of the rest of its request, if answers are generated in bulk, so that drafts also learn to
summarise long texts.
"""
REQUEST_TOKENS = 160
"""Most tokens of a request that the target makes up."""


def on_gpu() -> bool:
    """Whether torch finds a GPU."""
    return torch.cuda.is_available()


def number_type(target: LoadedModel) -> str:
    """Number type of a target that only generates: bfloat16 on a GPU, and on a CPU with matrix tiles (AMX)."""
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    return "bfloat16" if on_gpu() or (has_tiles() and target.parameter_count >= HALF_FROM) else "auto"


@dataclass(frozen=True)
class DraftResult:
    """The result of a run."""

    folder: Path
    before: DraftFigures
    after: DraftFigures


def train_draft(config: TrainDraftConfig) -> DraftResult:
    """Distil a draft, or continue an interrupted run. Raises TrainingError and ModelError."""
    from transformers.utils import logging as hf_logging

    config.check()
    started_from_itself = Path(config.draft).resolve() == config.out.resolve()
    marks = ("acceptance.json", "config.json") if started_from_itself else ("acceptance.json",)
    check_place(config.out, marks, target=config.target, run=config.run)
    hf_logging.disable_progress_bar()  # transformers' own bars would break ours
    speaker = load_model(config.target or config.draft, recorded=False)
    if config.target and not config.draft.startswith(LAYERS):
        check_same_vocabulary(speaker, load_model(config.draft, recorded=False))
    free = ("out", "run", "connect", "key", "lr", "minutes", "steps", "workers", "compile")
    texts = (file for place in config.sources.texts for file in text_files(place))
    data = digest_of((*config.sources.questions, *config.sources.held_out, *texts))
    weights = files_digest(Path(config.target)).hex() if config.target else ""
    begin_run(
        config, free, vocabulary=speaker.vocabulary_fingerprint.hex(), data_digest=data, target_digest=weights
    )
    with roomy(config.run):
        start = start_folder(config.draft, speaker, config.run, config.share, config.learn)
    dtype = number_type(speaker)
    del speaker
    with stages(config.workers) as shown:
        return _DraftTraining(config, start, dtype, shown).whole()


class _DraftTraining:
    """The stages of one run, in order."""

    def __init__(self, config: TrainDraftConfig, start: str, dtype: str, shown: Stages) -> None:
        """dtype: number type of a local target that only generates."""
        self.config, self.start, self.shown, self.run = config, start, shown, config.run
        self.dtype = dtype
        self.texts, self.held_out, self.sampled = map(config.samples, ("texts", "held-out", "held-out-sampled"))

    def whole(self) -> DraftResult:
        """Run every stage."""
        self._prepare()
        held_out = load_samples(self.held_out)
        start = DraftNetwork(self.start)
        self.on_device = on_gpu() and trains_on_device(self.config, start)
        before = self._figures("measuring: before", start, held_out)
        del start
        torch.cuda.empty_cache()  # training runs in another process
        settings = self._loop_settings()
        self._check_end(settings)
        spec = DistilSpec(self.config, self.start, () if self.on_device else self._lessons())
        task = distil_task if self.on_device else DistilTask
        workers = 1 if on_gpu() else self.config.workers
        self._note(before, settings)
        steps, seconds = self.shown.train(
            "training: draft", spec, settings, workers, task, lambda said: self._note(before, settings)
        )
        draft = self._trained(settings.checkpoint)
        after = self._figures("measuring: after", draft, held_out)
        config, texts = self.config, load_samples(self.texts)
        target, sampled = DraftNetwork(config.target) if config.target else None, None
        if target is not None and (drawn := load_samples(self.sampled)):
            sampled = sampled_figures(draft, target, drawn)
        given, sources = load_samples(config.samples("given")), config.sources
        card = model_card(
            "draft", config=config, parameters=draft.loaded.parameter_count, sees=draft.sees, workers=workers,
            speaker=Path(config.target).name or config.connect or "the target of the logs",
            target_parameters=target.loaded.parameter_count if target is not None else 0,
            layers=config.draft.removeprefix(LAYERS) if config.draft.startswith(LAYERS) else "",
            origin=Path(config.draft).name, answers=len(texts), given_share=config.given_share if given else 0.0,
            answer_tokens=sum(len(text.ids) - text.start for text in texts),
            files=[file.name for file in (*sources.questions, *sources.texts, *sources.bags, *sources.verdicts)],
            machine=machine_name(config.workers), before=before, after=after, sampled=sampled, steps=steps,
            minutes=seconds / 60,
        )  # fmt: skip
        self._save(draft, card)
        return DraftResult(config.out, before, after)

    def _prepare(self) -> None:
        """Make prompts and the target's answers, which come from a local target, a verifier, or a log."""
        config, asked = self.config, self.config.samples("asked")
        if all(file.exists() for file in (self.texts, self.held_out, self.sampled)):
            return
        with ExitStack() as stack:
            target = self._target(stack)
            if not asked.exists():
                articles = self._articles(target) if config.sources.assistant else ()
                asked_itself = self._self_asked(target)
                with self.shown.counted("prompts", config.prompts) as progress, roomy(self.run):
                    found = gather(config, target.loaded, progress, articles, asked_itself)
                for words in found.notes:
                    self.shown.say(words)
                save_samples(config.samples("given"), found.texts)
                save_samples(config.samples("prompts"), found.prompts)
                save_samples(config.samples("logged"), found.said)
                save_samples(config.samples("logged-held-out"), found.kept)
                save_samples(asked, found.held_out)
            logged, kept = (load_samples(config.samples(name)) for name in ("logged", "logged-held-out"))
            if not self.held_out.exists() or not self.sampled.exists():
                questions = load_samples(asked)
                some = questions[:MEASURED_SAMPLED] if isinstance(target, DraftNetwork) else []
                with self.shown.counted("the target writes, to be held out", len(questions)) as progress:
                    greedy = target.answer(questions, config.new_tokens, progress=progress)
                    save_samples(self.sampled, target.answer(some, config.new_tokens, 1.0, config.seed))
                    save_samples(self.held_out, greedy + kept)
            if not self.texts.exists():
                save_samples(self.texts, self._written(target, load_samples(config.samples("prompts"))) + logged)

    def _articles(self, target: DraftNetwork | RemoteTarget) -> tuple[str, ...]:
        """Articles generated by the target, which it summarises later."""
        rng = random.Random(f"drafts/{self.config.seed}/articles")
        asked = [report_request(rng) for _ in range(max(self.config.prompts // ARTICLE_EVERY, 1))]
        prompts = question_prompts(target.loaded, asked, "articles")
        tokens = ARTICLE_TOKENS
        if isinstance(target, DraftNetwork) and target.answers_in_bulk:
            room = self.config.length - self.config.new_tokens - ARTICLE_PROMPT
            tokens = min(BULK_ARTICLE_TOKENS, max(room, ARTICLE_TOKENS))
        with self.shown.counted("the target writes articles", len(prompts)) as progress:
            texts = target.answer(prompts, tokens, ARTICLE_WARMTH, self.config.seed, progress)
        ends = target.loaded.eos_token_ids
        said = ([token for token in text.ids[text.start :] if token not in ends] for text in texts)
        return tuple(target.loaded.tokenizer.decode(ids).strip() for ids in said)

    def _self_asked(self, target: DraftNetwork | RemoteTarget) -> list[str]:
        """Requests that the target makes up."""
        count = round(self.config.sources.self_asked * (self.config.prompts + self.config.held_out))
        if not count:
            return []
        assert isinstance(target, DraftNetwork), "checked before"
        longest = min(self.config.length - self.config.new_tokens, REQUEST_TOKENS)
        with self.shown.counted("the target makes up requests", count) as progress:
            return self_asked(target, count, longest, self.config.seed, progress)

    def _lessons(self) -> tuple[Path, ...]:
        """Files of the target's predictions for every token of its answers, computed once."""
        texts = load_samples(self.texts)
        if not self.config.target:
            return ()
        parts = [texts[at : at + SHARD] for at in range(0, len(texts), SHARD)]
        files = [self.run / f"lessons-{number:04d}.pt" for number in range(len(parts))]
        if not all(file.exists() for file in files):
            target = DraftNetwork(self.config.target, dtype=self.dtype)
            teacher = Teacher(target, DraftNetwork(self.start), self.config.length)
            with self.shown.counted("the target's predictions", len(texts)) as progress, roomy(self.run):
                for number, (part, file) in enumerate(zip(parts, files, strict=True), 1):
                    if not file.exists():
                        teacher.write_lessons(part, file)
                    progress(min(number * SHARD, len(texts)), len(texts))
        return tuple(files)

    def _target(self, stack: ExitStack) -> DraftNetwork | RemoteTarget:
        config = self.config
        if config.target:
            return DraftNetwork(config.target, dtype=self.dtype)
        speaker = load_model(config.draft)
        if not config.connect:
            return RemoteTarget(None, speaker)
        return RemoteTarget(stack.enter_context(connect(config.connect, key=config.key)), speaker)

    def _written(self, target: DraftNetwork | RemoteTarget, prompts: list[ExitSample]) -> list[ExitSample]:
        """The target's answers, in shuffled order."""
        config, order = self.config, list(prompts)
        random.Random(f"drafts/{config.seed}/order").shuffle(order)
        with self.shown.counted("the target writes", len(order)) as progress:
            return write_answers(
                target, order, config.new_tokens, config.seed, self.run, config.workers, progress
            )

    def _loop_settings(self) -> LoopSettings:
        config = self.config
        return LoopSettings(
            name=NAME,
            folder=self.run,
            steps=config.steps,
            batch=config.batch,
            lr=config.lr,
            seed=config.seed,
            minutes=config.minutes,
            checkpoint_every=RENEWED_EVERY if config.on_policy else CHECKPOINT_EVERY,
            checkpoint_s=CHECKPOINT_S if self.on_device else 0.0,
            compile=config.compile and not self.on_device,
        )

    def _check_end(self, settings: LoopSettings) -> None:
        """Raise TrainingError if more updates are requested of a run that has ended, which is not trained further."""
        if not is_finished(settings) or settings.minutes:
            return
        made = int(read_checkpoint(settings.checkpoint)["step"])
        if made < settings.steps:
            raise TrainingError(
                f"the run in {self.run} ended after {made} updates: to train further, give another --run, and its "
                "draft as --draft"
            )

    def _note(self, before: DraftFigures, settings: LoopSettings) -> None:
        """Write the acceptance curve so far."""
        points = [
            AcceptancePoint(0, 0.0, before.tau, before.agreement),
            *read_curve(settings.log),
        ]
        write_curve(self.run, points, self.config.gamma)

    def _figures(self, title: str, draft: DraftNetwork, held_out: list[ExitSample]) -> DraftFigures:
        with self.shown.counted(title, len(held_out)) as progress:
            return draft_figures(draft, held_out, self.config.gamma, progress)

    def _trained(self, checkpoint: Path) -> DraftNetwork:
        """The draft of a checkpoint, with weights rounded as on disk, so that the saved draft is measured."""
        draft = DraftNetwork(self.start)
        kept = kept_dtype(draft.loaded.path)
        weights = read_checkpoint(checkpoint)["model"]
        targets = {"lm_head.weight", *draft.shared.about.sha256} if draft.shared is not None else set()
        draft.module.load_state_dict(
            {name: value if name in targets else value.to(kept).float() for name, value in weights.items()}
        )
        return draft

    def _save(self, draft: DraftNetwork, card: str) -> None:
        with roomy(self.config.out), replacing_model(self.config.out, self.shown.say) as folder:
            if draft.shared is not None:
                about = draft.shared.about
                save_sharing(draft.module, folder, str(draft.shared.target), tuple(about.sha256), about.layers)
            else:
                draft.module.to(kept_dtype(draft.loaded.path)).save_pretrained(folder)
                add_companions(self.start, folder, draft.loaded)
            for weights in folder.glob("*.safetensors"):
                weights.chmod(0o644)  # safetensors writes files that only their owner can read
            (folder / "README.md").write_text(card, encoding="utf-8")
            for name in ("acceptance.json", "acceptance.svg"):
                (folder / name).write_bytes((self.run / name).read_bytes())

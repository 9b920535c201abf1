# SPDX-License-Identifier: Apache-2.0
"""`specnav train draft`: prompts, the target's answers, training, figures, and a draft's folder with its model card.

Intermediate results are kept in the run folder, so an interrupted run continues with the same settings.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from specdec.link.channel import connect
from specdec.models import LoadedModel, load_model
from specdec.options import DecodingOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import EdgeSettings
from specnav.recipes.drafts.curve import AcceptancePoint, read_curve, write_curve
from specnav.recipes.drafts.data.assistant import report_request
from specnav.recipes.drafts.data.self_asked import self_asked
from specnav.recipes.drafts.data.sources import Sources, gather, question_prompts
from specnav.recipes.drafts.figures import DraftFigures, SampledFigures, draft_figures, sampled_figures
from specnav.recipes.drafts.gpu_task import distil_task, trains_on_device
from specnav.recipes.drafts.network import DraftNetwork, check_same_vocabulary
from specnav.recipes.drafts.remote import RemoteTarget
from specnav.recipes.drafts.start import LAYERS, add_companions, kept_dtype, save_sharing, start_folder
from specnav.recipes.drafts.task import RENEWED_EVERY, DistilSpec, DistilTask
from specnav.recipes.drafts.teacher import Teacher
from specnav.recipes.drafts.writing import SHARD, write_answers
from specnav.recipes.errors import TrainingError
from specnav.recipes.folders import appearing_at_once, check_place, keep_settings, roomy
from specnav.recipes.loop import LoopSettings, is_finished, read_checkpoint
from specnav.recipes.samples import ExitSample, load_samples, save_samples
from specnav.recipes.settings import TrainingSettings
from specnav.recipes.text.stages import Stages, stages
from specnav.recipes.threads import threads

NAME = "draft"
MEASURED_SAMPLED = 64
CHECKPOINT_EVERY = 50
"""Updates between two checkpoints of a run without the draft's own texts."""
HALF_FROM = 50_000_000
"""Least number of parameters for a target to compute in bfloat16, which would make a smaller one slower."""
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


@dataclass(frozen=True)
class TrainDraftConfig:
    """Settings of `specnav train draft`. Without a target, its tokens are learnt, not its distributions.

    For the shares see `DistilSpec`.
    """

    draft: str = setting(
        REQUIRED, "Draft to start from: a folder or hub id, or layers of the target, like layers:0-2,7."
    )
    out: Path = setting(REQUIRED, "Folder for the draft, its card and its acceptance curve.")
    run: Path = setting(REQUIRED, "Folder for samples and checkpoints; the same folder continues a run.")
    target: str = setting(
        "",
        "Folder or hub id; it is not changed. Or give --connect, or only --verdict-log.",
        metavar="FOLDER|ID",
    )
    connect: str = same_as(
        EdgeSettings,
        "connect",
        default="",
        help="Ask a running verifier, tcp://HOST:PORT: the target's tokens are learnt, not its distributions.",
    )
    key: Path | None = same_as(EdgeSettings, "key")
    sources: Sources = field(default_factory=Sources)
    prompts: int = setting(4000, "Prompts to make up if no data are given.", 1, metavar="N")
    held_out: int = setting(64, "Prompts used only for measuring.", 1, metavar="N")
    gamma: int = same_as(DecodingOptions, "gamma", high=64, help="Draft length at which τ is measured.")
    length: int = setting(256, "Tokens of a row, prompt and answer.", 16, metavar="N")
    new_tokens: int = setting(128, "Tokens of an answer.", 1, metavar="N")
    steps: int = setting(2000, "Updates.", 1, metavar="N")
    minutes: float = same_as(
        TrainingSettings,
        "minutes",
        help="Shorten the updates to about this many minutes, beside the time for making data (see --prompts); 0: no "
        "limit.",
    )
    batch: int = setting(12, "Rows per update and process.", 1, metavar="N")
    lr: float = setting(2e-3, "Highest learning rate.", 1e-9, metavar="X")
    on_policy: float = setting(0.5, "Share of rows with the draft's own texts.", 0, 1, metavar="X")
    given_share: float = setting(0.25, "Share of rows with given texts.", 0, 1, metavar="X")
    reverse: float = setting(0.25, "Share of the reverse KL in the distance.", 0, 1, metavar="X")
    hard: float = setting(0.5, "Share of the target's likeliest token in the loss.", 0, 1, metavar="X")
    seed: int = same_as(TrainingSettings, "seed")
    workers: int = same_as(TrainingSettings, "workers")
    compile: bool = setting(True, "Let torch compile the training step.")
    share: bool = setting(False, "Store only the layers: embeddings, head and tokenizer stay the target's.")
    learn: str = setting(
        "",
        "With --share: only these layers of the target learn and are stored, like 2,7; the others stay as they are.",
        metavar="LAYERS",
    )
    tokens: int = setting(
        0, "Tokens of the vocabulary that the loss covers in a batch; 0: all.", 0, metavar="N"
    )

    def __post_init__(self) -> None:
        check_settings(self, TrainingError)

    def check(self) -> None:
        """Raise TrainingError for values that cannot be combined."""
        if self.share and not self.target:
            raise TrainingError("--share needs the target's folder: give --target")
        if self.learn and not (self.share and self.draft.startswith(LAYERS)):
            raise TrainingError("--learn needs --share and layers of the target, like --draft layers:0-2,7")
        if self.target and self.connect:
            raise TrainingError("--target and --connect are two ways to ask a target: give one of them")
        if not self.target and self.draft.startswith(LAYERS):
            raise TrainingError(
                f"draft {self.draft}: layers can be taken only from a local target, given with --target"
            )
        if not self.target and not self.connect and (not self.sources.verdicts or self.sources.asks):
            raise TrainingError("no target is given: give --target, --connect, or only --verdict-log")
        if self.sources.self_asked and not (self.sources.assistant and self.target):
            raise TrainingError("--self-asked needs --assistant and a local target: give --target")
        if self.sources.held_out and not self.target and not self.connect:
            raise TrainingError(
                "--held-out-questions needs a target that answers them: give --target or --connect"
            )
        if self.key is not None and not self.connect:
            raise TrainingError("--key is for a verifier: give its address with --connect")
        if self.sources.instruction and not self.sources.bags:
            raise TrainingError("--instruction is for a bag without its own: give the bag with --bag")
        if self.new_tokens + 8 > self.length:
            raise TrainingError(
                f"length {self.length} leaves no room for a prompt before {self.new_tokens} new tokens"
            )


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
    # These may change when a run is continued: the learning rate, the time, the workers and so on.
    free = ("out", "run", "connect", "key", "lr", "minutes", "steps", "workers", "compile")
    kept = {name: value for name, value in asdict(config).items() if name not in free}
    with roomy(config.run):
        config.run.mkdir(parents=True, exist_ok=True)
        keep_settings(config.run, kept | {"vocabulary": speaker.vocabulary_fingerprint.hex()})
        start = start_folder(config.draft, speaker, config.run, config.share, config.learn)
    dtype = number_type(speaker)
    del speaker
    with stages() as shown, threads(config.workers):
        return _DraftTraining(config, start, dtype, shown).whole()


class _DraftTraining:
    """The stages of one run, in order."""

    def __init__(self, config: TrainDraftConfig, start: str, dtype: str, shown: Stages) -> None:
        """dtype: number type of a local target that only generates."""
        self.config, self.start, self.shown, self.run = config, start, shown, config.run
        self.dtype = dtype
        self.prompts, self.texts, self.given, self.held_out, self.sampled = (
            config.run / f"{name}.jsonl"
            for name in ("prompts", "texts", "given", "held-out", "held-out-sampled")
        )

    def whole(self) -> DraftResult:
        """Run every stage."""
        self._prepare()
        held_out = load_samples(self.held_out)
        start = DraftNetwork(self.start)
        self.on_device = on_gpu() and trains_on_device(self._spec(()), start)
        before = self._figures("measuring: before", start, held_out)
        del start
        torch.cuda.empty_cache()  # training runs in another process
        settings = self._loop_settings()
        self._check_end(settings)
        spec = self._spec(() if self.on_device else self._lessons())
        task = distil_task if self.on_device else DistilTask
        workers = 1 if on_gpu() else self.config.workers
        self._note(before, settings)
        steps, seconds = self.shown.train(
            "training: draft", spec, settings, workers, task, lambda said: self._note(before, settings)
        )
        draft = self._trained(settings.checkpoint)
        after = self._figures("measuring: after", draft, held_out)
        target = DraftNetwork(self.config.target) if self.config.target else None
        sampled = None
        if target is not None and (texts := load_samples(self.sampled)):
            sampled = sampled_figures(draft, target, texts)
        self._save(draft, self._card(draft, target, before, after, sampled, steps, seconds / 60))
        return DraftResult(self.config.out, before, after)

    def _prepare(self) -> None:
        """Make prompts and the target's answers, which come from a local target, a verifier, or a log."""
        config, asked = self.config, self.run / "asked.jsonl"
        if all(file.exists() for file in (self.texts, self.held_out, self.sampled)):
            return
        with ExitStack() as stack:
            target = self._target(stack)
            if not asked.exists():
                articles = self._articles(target) if config.sources.assistant else ()
                asked_itself = self._self_asked(target)
                with self.shown.counted("prompts", config.prompts) as progress, roomy(self.run):
                    found = gather(
                        config.sources,
                        target.loaded,
                        config.prompts,
                        config.held_out,
                        config.length - config.new_tokens,
                        config.length,
                        self.run,
                        config.seed,
                        progress,
                        articles,
                        asked_itself,
                    )
                for words in found.notes:
                    self.shown.say(words)
                save_samples(self.given, found.texts)
                save_samples(self.prompts, found.prompts)
                save_samples(self.run / "logged.jsonl", found.said)
                save_samples(self.run / "logged-held-out.jsonl", found.kept)
                save_samples(asked, found.held_out)
            logged, kept = (
                load_samples(self.run / f"{name}.jsonl") for name in ("logged", "logged-held-out")
            )
            if not self.held_out.exists() or not self.sampled.exists():
                questions = load_samples(asked)
                some = questions[:MEASURED_SAMPLED] if isinstance(target, DraftNetwork) else []
                with self.shown.counted("the target writes, to be held out", len(questions)) as progress:
                    greedy = target.answer(questions, config.new_tokens, progress=progress)
                    save_samples(self.sampled, target.answer(some, config.new_tokens, 1.0, config.seed))
                    save_samples(self.held_out, greedy + kept)
            if not self.texts.exists():
                save_samples(self.texts, self._written(target, load_samples(self.prompts)) + logged)

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

    def _spec(self, lessons: tuple[Path, ...]) -> DistilSpec:
        config = self.config
        return DistilSpec(
            config.target,
            self.start,
            self.texts,
            self.given,
            self.prompts,
            self.held_out,
            config.length,
            config.new_tokens,
            config.on_policy,
            config.given_share,
            config.reverse,
            config.hard,
            config.gamma,
            config.tokens,
            lessons,
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
        with roomy(self.config.out), appearing_at_once(self.config.out) as folder:
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

    def _card(
        self,
        draft: DraftNetwork,
        target: DraftNetwork | None,
        before: DraftFigures,
        after: DraftFigures,
        sampled: SampledFigures | None,
        steps: int,
        minutes: float,
    ) -> str:
        """The model card, README.md of the draft's folder."""
        config, gamma = self.config, self.config.gamma
        speaker = Path(config.target).name or config.connect or "the target of the logs"
        beside = "" if target is None else f" (target: {target.loaded.parameter_count / 1e6:.2f}M)"
        rows = config.batch * (1 if on_gpu() else config.workers)
        machine = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{config.workers} CPU core(s)"
        return f"""---
library_name: transformers
---
# {config.out.name}

A draft model for `{speaker}`: it guesses what the target will say, and the target decides every token.
It has {draft.loaded.parameter_count / 1e6:.2f}M parameters{beside}. Made by `specnav train draft`, seed {config.seed}.

## Training
Started from {_origin(config.draft)}. {self._recipe()}
{steps} updates of {rows} rows of {config.length} tokens, learning rate {config.lr:g},
{minutes:.0f} minutes on {machine}.
Data: {_data(config.sources, draft.sees)}. Curve: `acceptance.svg`, `acceptance.json`.

## Figures
On {after.answers} answers of the target ({after.tokens} tokens) to prompts held out, greedy, γ = {gamma}, with the
weights as saved. τ: tokens a verification gains, the target's own included. Agreement: share of tokens that are the
draft's likeliest.

| | τ | agreement |
|---|---|---|
| before | {before.tau:.2f} | {before.agreement:.1%} |
| after | {after.tau:.2f} | {after.agreement:.1%} |
{_sampled(sampled)}
One training run, one seed.
"""

    def _recipe(self) -> str:
        config, texts = self.config, load_samples(self.texts)
        if config.connect:
            return f"Learnt {len(texts)} answers of the target, its picks alone, asked through a verifier."
        if not config.target:
            return "Learnt the target's picks from verdicts that were logged, without the target."
        tokens = sum(len(text.ids) - text.start for text in texts)
        given = config.given_share if load_samples(self.given) else 0.0
        return (
            f"Distilled: {config.on_policy:.0%} of the rows are the draft's own words, {given:.0%} were given "
            f"to read,\nthe others are {len(texts)} answers of the target ({tokens:,} tokens); of the "
            f"loss {config.hard:.0%} is the target's\nlikeliest token, the rest the Kullback-Leibler distance "
            f"({config.reverse:.0%} of it reversed)."
        )


def _origin(draft: str) -> str:
    if draft.startswith(LAYERS):
        return f"the target's embeddings, head and layers {draft.removeprefix(LAYERS)}"
    return f"`{Path(draft).name}`"


def _data(sources: Sources, sees: bool) -> str:
    if sources.assistant:
        own = f"{sources.self_asked:.0%} requests that the target made up itself (Magpie); the others are\n"
        return (own if sources.self_asked else "") + (
            "composed requests to a chat assistant (writing, roleplay, facts, instructions, arithmetic, Python to be\n"
            "completed, articles of the target's own to be summarised); nothing of any benchmark"
        )
    if not sources.named:
        if sees:
            return "instructions beside frames of the simulator's training rooms, answered by the target"
        return (
            "questions about Python's standard library, code that begins, composed ordinary requests, and requests\n"
            "about the paragraphs and functions of the packages that were installed"
        )
    named = [*sources.questions, *sources.texts, *sources.bags, *sources.verdicts]
    return ", ".join(f"`{file.name}`" for file in named)


def _sampled(found: SampledFigures | None) -> str:
    if found is None:
        return ""
    return f"""
At temperature 1, on {found.tokens} tokens that the target sampled: a sampled draft token is accepted with a chance of
{found.overlap:.1%} (rejection sampling; mean overlap of both distributions). The target's own entropy is
{found.entropy:.2f} nats a token: without shared noise it would itself say the same token again {found.again:.1%} of
the time.
"""

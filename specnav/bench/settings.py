# SPDX-License-Identifier: Apache-2.0
"""Settings of bench runs, declared once: command options and checks are made from these classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloud_verifier.config import ServerConfig
from specdec.link.shaping import LinkProfile, parse_outages
from specdec.options import DecodingOptions, GenerationOptions, ModelOptions
from specdec.row_ms import MAX_MS, read_ms
from specdec.settings import REQUIRED, check_settings, same_as, setting, settings_of, values_for, words
from specnav.edge_settings import EdgeSettings
from specnav.errors import UsageError
from specnav.paths import CONFIG, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.published.pairs import with_pair

QUESTIONS = CONFIG / "questions" / "short.jsonl"
PACING = "MS[:ROWS,...]"
LEAST_TIME_SCALE = 0.01


@dataclass(frozen=True)
class BenchConfig:
    """Settings of a bench run: options of the commands of `specnav bench`, and fields of an operating point's file.

    Raises UsageError for a value out of range. time_scale: factor on every time of the link and of forwards.
    draft_quantize: quantisation of the draft alone; None: as the target.
    """

    questions: tuple[str, ...] = setting(
        (str(QUESTIONS),),
        "A .jsonl file (question_id, category, turns), a text file (one question per line) or hf:ORG/NAME; may be "
        "given several times.",
        metavar="FILE",
        shown="a few questions of our own",
    )
    methods: tuple[str, ...] = setting(
        (),
        "Methods, separated by commas; axes may be overridden, like sd+tree:32x6. Oracles: hf-generate, hf-assisted.",
        metavar="NAME,...",
        shown="every method",
        read=words,
    )
    limit: int | None = setting(None, "At most this many questions.", 1, 1_000_000)
    max_new_tokens: int = same_as(GenerationOptions, "max_new_tokens")
    gamma: int = same_as(DecodingOptions, "gamma")
    temperature: float = same_as(GenerationOptions, "temperature", high=10)
    top_k: int = same_as(GenerationOptions, "top_k")
    top_p: float = same_as(GenerationOptions, "top_p")
    min_p: float = same_as(GenerationOptions, "min_p")
    repetition_penalty: float = same_as(GenerationOptions, "repetition_penalty")
    seed: int = same_as(GenerationOptions, "seed")
    rtt_ms: float = same_as(LinkProfile, "rtt_ms")
    jitter_ms: float = same_as(LinkProfile, "jitter_ms")
    bandwidth_mbps: float = same_as(LinkProfile, "bandwidth_mbps")
    loss: float = same_as(LinkProfile, "loss")
    outages: tuple[str, ...] = setting(
        (),
        "Cut the link for DURATION seconds, START seconds after it came up; may be given several times.",
        metavar="START:DURATION",
        flags=("--outage",),
    )
    draft_ms: float = setting(
        0.0, "Minimum time of a draft forward; by number of rows: 72:1,90:4.", 0, MAX_MS, unit="ms", metavar=PACING,
        read=read_ms,
    )  # fmt: skip
    verify_ms: float = setting(
        0.0, "Minimum time of a target forward; may also be by rows.", 0, MAX_MS, unit="ms", metavar=PACING,
        read=read_ms,
    )  # fmt: skip
    cloud_draft_ms: float | None = setting(
        None, "Minimum time of a draft forward in the cloud.", 0, MAX_MS, unit="ms", metavar=PACING, read=read_ms,
        shown="as --draft-ms",
    )  # fmt: skip
    length: str | None = setting(
        None,
        "Draft length of every drafting method: fixed, latency, pipeline or online (fsd also: marginal; chains also: "
        "worth, token:R2, sequence:R1, sequence:moving, dual:R1/R2, dual:learned).",
    )
    payload: str | None = setting(None, "What every drafting method sends up: ids, scalars or rows.")
    resample: str | None = setting(
        None,
        "How every drafting method recovers from a rejection: noise, cloud, row, samples:M, sparse:K or truncated:K "
        "(lossy).",
    )
    pair: str | None = same_as(EdgeSettings, "pair")
    target_model: str = same_as(
        EdgeSettings, "target_model", default=str(DEFAULT_TEXT_TARGET), shown="the shipped one"
    )
    draft_model: str = same_as(
        EdgeSettings, "draft_model", default=str(DEFAULT_TEXT_DRAFT), shown="the shipped one"
    )
    gguf: str = same_as(ModelOptions, "gguf")
    draft_quantize: str | None = None
    engine: str = same_as(ServerConfig, "engine")
    gpu_layers: int = same_as(ServerConfig, "gpu_layers")
    kv_type: str = same_as(ServerConfig, "kv_type")
    exits: str = same_as(ModelOptions, "exits")
    exit_layers: str = same_as(ModelOptions, "exit_layers")
    quantize: str = same_as(ModelOptions, "quantize")
    device: str = same_as(ModelOptions, "device")
    dtype: str = same_as(
        ModelOptions, "dtype", help="Number type of both models; auto: float32 on a CPU, else as stored."
    )
    deterministic: bool = same_as(ModelOptions, "deterministic")
    compile: bool = same_as(ModelOptions, "compile")
    compile_draft: bool = same_as(EdgeSettings, "compile_draft")
    acceptance: str = setting(
        "",
        "Emulated: the draft is the target with logits disturbed until sd gains T of at most N tokens per round "
        "(tau:2.92@5), or until a draft token is accepted with probability A (alpha:0.8).",
        metavar="tau:T@N|alpha:A",
    )
    time_scale: float = setting(1.0, "Multiplies every time of an operating point.", LEAST_TIME_SCALE, 10)
    point: str = setting(
        "", "Operating point of a paper (config/points) or a file; other options override it."
    )
    out: Path | None = setting(None, "Folder of the run.", metavar="DIR", shown="runs/bench-<time>")
    resume: bool = setting(False, "Continue the run in --out.")
    start_timeout_s: float = 300.0

    def __post_init__(self) -> None:
        from specnav.models import may_be_model

        check_settings(self, UsageError)
        if self.acceptance:
            self._draft_with_target()
        self.profile()  # parsing checks the outages
        generation_options(self)  # before anything is loaded
        if self.resume and self.out is None:
            raise UsageError("--resume continues an earlier run; name its folder with --out")
        for role, model in (("target", self.target_model), ("draft", self.draft_model)):
            if not may_be_model(model):
                raise UsageError(
                    f"{role} model {model} is missing or is not a Hugging Face folder; train one with specnav train "
                    f"text, or give another with --{role}-model"
                )

    def _draft_with_target(self) -> None:
        """Make the target the draft. Raises EvaluationError for a bad acceptance, UsageError if a draft is given."""
        from specnav.bench.data.acceptance import read_acceptance

        object.__setattr__(self, "acceptance", str(read_acceptance(self.acceptance, self.gamma)))
        if self.draft_model not in (str(DEFAULT_TEXT_DRAFT), self.target_model) or self.gguf:
            raise UsageError(
                "with an emulated acceptance the draft has the target's weights; leave out the draft (--draft-model, "
                "--gguf) or --acceptance"
            )
        object.__setattr__(self, "draft_model", self.target_model)

    @property
    def draft_ms_in_cloud(self) -> float:
        """Minimum time of a draft forward in the cloud."""
        return self.draft_ms if self.cloud_draft_ms is None else self.cloud_draft_ms

    def profile(self) -> LinkProfile:
        """The emulated link. Raises OptionsError for an invalid outage."""
        return LinkProfile(
            self.rtt_ms, self.jitter_ms, self.bandwidth_mbps, self.loss, parse_outages(self.outages)
        )

    @property
    def link_is_emulated(self) -> bool:
        """Whether a link emulator runs between edge and cloud."""
        return any((self.rtt_ms, self.jitter_ms, self.bandwidth_mbps, self.loss, self.outages))


def generation_options(config: BenchConfig) -> GenerationOptions:
    """The options of generation. Raises OptionsError."""
    return GenerationOptions(**values_for(GenerationOptions, config))


def make_config(flags: Mapping[str, Any]) -> BenchConfig:
    """Make a config from the given flags (others are None), which override the operating point, if one is named."""
    from specnav.bench.data.points import load_point, paper_acceptance
    from specnav.settings import make_settings

    given = {name: value for name, value in flags.items() if value is not None}
    for name in ("target_model", "draft_model", "exits"):
        # The verifier has another working directory.
        if name in given and Path(given[name]).exists():
            given[name] = str(Path(given[name]).resolve())
    base: dict[str, Any] = {}
    at_paper = given.pop("at_paper_acceptance", False)
    if not given.get("point", "none").strip():
        raise UsageError("--point names no operating point: give one, or leave it out")
    if given.get("point"):
        point = load_point(given["point"])[0]
        base = point.settings() | ({"acceptance": paper_acceptance(point)} if at_paper else {})
    if at_paper and not given.get("point"):
        raise UsageError("--at-paper-acceptance needs an operating point; name one with --point")
    if "time_scale" in given and not given.get("point"):
        raise UsageError("--time-scale multiplies the times of an operating point: name one with --point")
    if at_paper and given.get("acceptance"):
        raise UsageError("--at-paper-acceptance and --acceptance both set the acceptance: give one of them")
    # Where acceptance is emulated, the target drafts.
    draft = "" if base.get("acceptance") or given.get("acceptance") else "draft_model"
    engine = given.get("engine", BenchConfig.engine)
    given = with_pair(given.get("pair"), given, draft=draft, exits="exits", engine=engine)
    scale = given.get("time_scale", 1.0)
    config = make_settings(BenchConfig, {**base, **given}, "specnav bench")
    return config if scale == 1.0 else with_times(config, scale)


def with_times(config: BenchConfig, scale: float) -> BenchConfig:
    """Multiply every time of the operating point by `scale`; a larger scale gives unpaced overhead less weight."""
    return replace(
        config,
        rtt_ms=config.rtt_ms * scale,
        jitter_ms=config.jitter_ms * scale,
        bandwidth_mbps=config.bandwidth_mbps / scale,
        draft_ms=config.draft_ms * scale,
        verify_ms=config.verify_ms * scale,
        cloud_draft_ms=None if config.cloud_draft_ms is None else config.cloud_draft_ms * scale,
        outages=tuple(f"{start * scale!r}:{length * scale!r}" for start, length in config.profile().outages),
    )


@dataclass(frozen=True, kw_only=True)
class AtPaper:
    """Option of the commands of `specnav bench` that accept operating points."""

    at_paper_acceptance: bool = setting(False, "The acceptance that the operating point's paper prints.")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)


def flag_of(name: str) -> str:
    """The command-line flag of a setting of runs."""
    return {**settings_of(BenchConfig), **settings_of(AtPaper)}[name].spellings[0]


@dataclass(frozen=True, kw_only=True)
class RunWords(AtPaper):
    """Arguments of `specnav bench run`."""

    files: tuple[str, ...] = setting(
        (), "Question files, as --questions.", metavar="FILE", positional=True
    )


@dataclass(frozen=True, kw_only=True)
class PointsWords(AtPaper):
    """Arguments of `specnav bench points`."""

    names: str = setting(
        REQUIRED, "Operating points in config/points, or files.", metavar="NAME,...|all", positional=True
    )
    write: bool = setting(
        False, "In a git checkout: write the tables into config/points and docs/figures.md."
    )


@dataclass(frozen=True, kw_only=True)
class ClientsWords(AtPaper):
    """Arguments of `specnav bench clients`."""

    counts: str = setting(
        REQUIRED, "Numbers of clients, each measured separately.", metavar="N,N,...", positional=True
    )
    seconds: float = setting(10.0, "How long each number of clients asks.", 1, 3600, unit="s")


@dataclass(frozen=True)
class DraftsWords:
    """Arguments of `specnav bench drafts`."""

    backends: tuple[str, ...] = setting(
        (),
        "torch or gguf (llama.cpp), also with a type: torch:8bit, gguf:q4_0. Folders are converted to GGUF.",
        metavar="NAME[:TYPE],...",
        shown="both",
        read=words,
    )
    models: tuple[str, ...] = setting(
        (), "Folders and GGUF files.", metavar="MODEL,...", shown="the shipped draft", read=words
    )
    seconds: float = setting(2.0, "How long a draft's forwards are timed.", 1, 3600, unit="s")


@dataclass(frozen=True, kw_only=True)
class StudyWords(AtPaper):
    """Arguments of `specnav bench study`. own: each NAME=VALUE."""

    names: str | None = setting(
        None,
        "threads, gamma, queues, exits, link, ablation, comm. Only alone: clients (how many one verifier serves), "
        "batch (cost of a shared forward), payloads (bytes of a round), cost (API bills).",
        metavar="NAME,...|all",
        positional=True,
    )
    clients: str | None = setting(
        None, "For clients and batch: the numbers to measure.", metavar="N,N,...", shown="the study's own"
    )
    seconds: float | None = setting(
        None, "For clients and batch: how long each is measured.", 1, 3600, unit="s", shown="the study's own"
    )
    batch_curve: Path | None = setting(
        None, "For clients: plan with the batch.json of the study batch.", metavar="FILE"
    )
    own: tuple[str, ...] = setting(
        (),
        "For payloads and cost: sets a number; may be given several times.",
        metavar="NAME=VALUE",
        flags=("--with",),
        shown="the study's own",
    )
    redraw: Path | None = setting(
        None, "Draw the studies in a folder again, without running anything.", metavar="DIR"
    )

"""What a bench run is asked to do: one frozen record, checked when it is made; and the papers' operating points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from specdec.link.shaping import LinkProfile, parse_outages
from specdec.options import GenerationOptions
from specdec.row_ms import read_ms
from specnav.bench.data.acceptance import read_acceptance
from specnav.bench.data.points import load_point, paper_acceptance
from specnav.errors import UsageError
from specnav.models import may_be_model
from specnav.paths import CONFIG, DEFAULT_TEXT_DRAFT, DEFAULT_TEXT_TARGET
from specnav.settings import make_settings

POINTS = CONFIG / "points"
QUESTIONS = CONFIG / "questions" / "short.jsonl"
_LIMITS: dict[str, tuple[float, float]] = {
    "limit": (1, 1_000_000),
    "max_new_tokens": (1, 1_000_000),
    "gamma": (1, 32),
    "temperature": (0, 10),
    "top_k": (0, 1_000_000),
    "top_p": (1e-9, 1),
    "min_p": (0, 1),
    "repetition_penalty": (0.01, 100),
    "seed": (0, 2**63 - 1),
    "rtt_ms": (0, 60_000),
    "jitter_ms": (0, 60_000),
    "bandwidth_mbps": (0, 1_000_000),
    "loss": (0, 0.9),
    "draft_ms": (0, 60_000),
    "verify_ms": (0, 60_000),
    "cloud_draft_ms": (0, 60_000),
    "time_scale": (0.01, 10),
}


@dataclass(frozen=True)
class BenchConfig:
    """Settings of a bench run; a wrong value is refused with the allowed range (UsageError).

    questions: files or datasets (see questions.py). methods: empty = all of the core's. limit: at most so many
    questions, taken from the files in turn. draft_ms, verify_ms: pacing, 0 = off;
    cloud_draft_ms: of a draft model beside the target, None = as on the edge. outages: START:DURATION in seconds since
    the link came up. length, payload, resample: axes for every method that drafts on the edge (specdec.methods).
    exits, exit_layers: of the verifier (cloud_verifier.ServerConfig). gguf: of a GGUF draft
    (specdec.models.GgufOptions). draft_quantize: of the draft alone, None = as the target. compile, compile_draft: the
    target and the draft are compiled by torch. acceptance: emulated, as acceptance.wanted has it; the draft
    is the target then. time_scale: every time, of the link and of forwards, was multiplied by it. point: the operating
    point that the settings were taken from.
    """

    questions: tuple[str, ...] = (str(QUESTIONS),)
    methods: tuple[str, ...] = ()
    limit: int | None = None
    max_new_tokens: int = 64
    gamma: int = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    rtt_ms: float = 0.0
    jitter_ms: float = 0.0
    bandwidth_mbps: float = 0.0
    loss: float = 0.0
    outages: tuple[str, ...] = ()
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    cloud_draft_ms: float | None = None
    length: str | None = None
    payload: str | None = None
    resample: str | None = None
    target_model: str = str(DEFAULT_TEXT_TARGET)
    draft_model: str = str(DEFAULT_TEXT_DRAFT)
    gguf: str = ""
    draft_quantize: str | None = None
    exits: str = ""
    exit_layers: str = "auto"
    quantize: str = "none"
    device: str = "auto"
    dtype: str = "auto"
    deterministic: bool = False
    compile: bool = False
    compile_draft: bool = False
    acceptance: str = ""
    time_scale: float = 1.0
    point: str = ""
    out: Path | None = None
    resume: bool = False
    start_timeout_s: float = field(default=300.0)

    def __post_init__(self) -> None:
        for name in ("draft_ms", "verify_ms", "cloud_draft_ms"):
            if isinstance(getattr(self, name), str):  # of a YAML file
                object.__setattr__(self, name, read_ms(getattr(self, name)))
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if value is None and name in ("limit", "cloud_draft_ms"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise UsageError(f"{name} is {value!r}; give a number from {low:g} to {high:g}")
        if self.acceptance:
            self._draft_with_target()
        self.profile()  # outages are checked where they are read
        if self.resume and self.out is None:
            raise UsageError("--resume goes on with an earlier run; name its folder with --out")
        for role, model in (("target", self.target_model), ("draft", self.draft_model)):
            if not may_be_model(model):
                raise UsageError(
                    f"{role} model {model} is missing or no Hugging Face folder; train one with specnav train text, "
                    f"or give another with --{role}-model"
                )

    def _draft_with_target(self) -> None:
        """With emulated acceptance. Raises EvaluationError for one that is none, UsageError for another draft."""
        object.__setattr__(self, "acceptance", str(read_acceptance(self.acceptance, self.gamma)))
        if self.draft_model not in (str(DEFAULT_TEXT_DRAFT), self.target_model) or self.gguf:
            raise UsageError(
                "with an emulated acceptance the draft is the target's own weights; leave the draft (--draft-model, "
                "--gguf) or --acceptance out"
            )
        object.__setattr__(self, "draft_model", self.target_model)

    @property
    def draft_ms_in_cloud(self) -> float:
        """Pacing of a draft forward in the cloud."""
        return self.draft_ms if self.cloud_draft_ms is None else self.cloud_draft_ms

    def profile(self) -> LinkProfile:
        """The emulated link. Raises OptionsError for an outage that is none."""
        return LinkProfile(
            self.rtt_ms, self.jitter_ms, self.bandwidth_mbps, self.loss, parse_outages(self.outages)
        )

    @property
    def link_is_emulated(self) -> bool:
        """Whether the link emulator stands between edge and cloud."""
        return self.profile() != LinkProfile()


def generation_options(config: BenchConfig) -> GenerationOptions:
    """How answers are made. Raises OptionsError."""
    return GenerationOptions(
        max_new_tokens=config.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        top_k=config.top_k,
        top_p=config.top_p,
        min_p=config.min_p,
        repetition_penalty=config.repetition_penalty,
    )


def make_config(flags: Mapping[str, Any]) -> BenchConfig:
    """A config from the flags that were given (others are None) over the operating point, if one is named."""
    given = {name: value for name, value in flags.items() if value is not None}
    for name in ("target_model", "draft_model", "exits"):
        # The verifier has another working folder.
        if name in given and Path(given[name]).exists():
            given[name] = str(Path(given[name]).resolve())
    base: dict[str, Any] = {}
    at_paper = given.pop("at_paper_acceptance", False)
    if given.get("point"):
        point = load_point(given["point"])[0]
        base = point.settings() | ({"acceptance": paper_acceptance(point)} if at_paper else {})
    if at_paper and not given.get("point"):
        raise UsageError("--at-paper-acceptance takes that of an operating point; name one with --point")
    if at_paper and given.get("acceptance"):
        raise UsageError("--at-paper-acceptance and --acceptance both say it; give one")
    if "draft_model" in given and (base.get("acceptance") or given.get("acceptance")):
        raise UsageError("with an emulated acceptance the draft is the target's own weights; leave --draft-model out")
    scale = given.get("time_scale", 1.0)
    config = make_settings(BenchConfig, {**base, **given}, "specnav bench")
    return config if scale == 1.0 else with_times(config, scale)


def with_times(config: BenchConfig, scale: float) -> BenchConfig:
    """Every time of the operating point multiplied by `scale`: ratios stay, and what else takes time weighs less."""
    return replace(
        config,
        rtt_ms=config.rtt_ms * scale,
        jitter_ms=config.jitter_ms * scale,
        bandwidth_mbps=config.bandwidth_mbps / scale,
        draft_ms=config.draft_ms * scale,
        verify_ms=config.verify_ms * scale,
        cloud_draft_ms=None if config.cloud_draft_ms is None else config.cloud_draft_ms * scale,
    )

# SPDX-License-Identifier: Apache-2.0
"""Turns the flags of `specnav bench study` into bench runs: checks the flags and estimates the duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloud_verifier.config import NO_EXITS
from cloud_verifier.loading import exits_folder_of
from specdec.methods import METHODS, get_method
from specdec.verifying.exits.files import ABOUT, ExitsMetadata
from specnav.bench.data import latency
from specnav.bench.data.questions import load_questions
from specnav.bench.runner.loop import WARM_UP_TOKENS
from specnav.bench.runner.points import point_names
from specnav.bench.runner.run import methods_of
from specnav.bench.settings import BenchConfig, make_config, with_times
from specnav.bench.studies.plan import Study, StudyRequest, StudySetting
from specnav.errors import UsageError
from specnav.results.files import read_json

POINT = "go2-wifi6"
_FLAGS = {"rtt_ms": "--rtt"}
"""Flags whose name differs from their setting's."""


@dataclass(frozen=True)
class StudyJob:
    """One setting as a bench run. estimate_s: estimated seconds of the run."""

    study: Study
    setting: StudySetting
    config: BenchConfig
    estimate_s: float

    def within(self, folder: Path) -> StudyJob:
        """The job with its output in a folder of studies; it resumes there if it was begun."""
        place = folder / self.study.name / self.setting.folder
        return replace(self, config=replace(self.config, out=place, resume=place.is_dir()))


def check_flags(flags: Mapping[str, Any], studies: Sequence[Study]) -> None:
    """Raise UsageError for flags that a study does not accept. flags: None where not given."""
    if len(point_names(flags.get("point"))) > 1 or flags.get("point") == "all":
        raise UsageError("a study is about one operating point; give one with --point")
    for name in ("length", "payload", "resample"):
        if flags.get(name) is not None:
            raise UsageError(
                f"--{name} is not varied by a study: name the axis in --methods, like sd+{name}:VALUE"
            )
    for study in studies:
        if flags.get("methods") is not None and not study.takes_methods:
            raise UsageError(f"study {study.name} has its own methods; leave --methods out")
        for name in study.sets:
            if flags.get(name) is not None:
                flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
                raise UsageError(f"study {study.name} varies this itself; leave {flag} out")


def make_jobs(flags: Mapping[str, Any], studies: Sequence[Study], time_scale: float) -> list[StudyJob]:
    """The runs of some studies, in order. Raises UsageError and the rooms' errors for invalid flags."""
    return [job for study in studies for job in _jobs_of(flags, study, time_scale)]


def _jobs_of(flags: Mapping[str, Any], study: Study, time_scale: float) -> list[StudyJob]:
    given = {name: value for name, value in flags.items() if value is not None}
    given = {"point": study.point or POINT, "limit": study.limit, "max_new_tokens": study.max_new_tokens, **given}
    if "acceptance" in study.sets:
        given.pop("at_paper_acceptance", None)
    named = tuple(given.pop("methods", ()))
    layers = exits_of(make_config(given))
    if study.needs_exits and not layers:
        raise UsageError(
            f"study {study.name} needs a target with early exits: specnav train exits makes them, --exits names them"
        )
    settings = study.settings(StudyRequest(tuple(METHODS), named, layers))
    return [_job(given, study, one, time_scale) for one in settings]


def _job(given: Mapping[str, Any], study: Study, setting: StudySetting, time_scale: float) -> StudyJob:
    config = make_config({**given, **setting.changes, "methods": setting.methods})
    config = scaled(config, time_scale)
    methods, _ = methods_of(config)
    turns = sum(len(one.turns) for one in load_questions(config.questions, config.limit))
    short = min(config.max_new_tokens, WARM_UP_TOKENS)
    answers_s = sum(
        answer_s(name, config, short) + turns * answer_s(name, config, config.max_new_tokens) for name in methods
    )
    return StudyJob(study, setting, config, START_S + answers_s)


def scaled(config: BenchConfig, scale: float) -> BenchConfig:
    """The config with every time multiplied by `scale`, and without the point, which belongs to the study."""
    return replace(with_times(config, scale), point="")


def exits_of(config: BenchConfig) -> tuple[int, ...]:
    """Layers of the verifier's early exits; empty if it has none. Raises EvaluationError."""
    if config.exits == NO_EXITS:
        return ()
    folder = Path(config.exits) if config.exits else exits_folder_of(Path(config.target_model))
    return () if folder is None else tuple(read_json(folder / ABOUT, ExitsMetadata).layers)


ALPHA = 0.5
"""Probability that a draft token of the shipped text pair is accepted."""
START_S = 8.0
"""Seconds to load a small pair and start the processes."""
LEAST_DRAFT_MS, LEAST_VERIFY_MS, OVERHEAD_MS = 2.0, 4.0, 2.0
"""Times of the shipped pair without pacing, and the overhead of a round beyond its parts."""


def answer_s(name: str, config: BenchConfig, tokens: int) -> float:
    """Estimated seconds of an answer of `tokens` tokens; assumes that pre-drafting gains nothing."""
    method, gamma, one_way_ms = get_method(name), config.gamma, config.rtt_ms / 2
    verify = max(config.verify_ms, LEAST_VERIFY_MS) + OVERHEAD_MS
    tau = latency.expected_tokens(ALPHA, gamma)
    if method.split:
        rest = latency.split(tokens, verify / 4, verify * 3 / 4, one_way_ms)
    elif method.drafts:
        draft = max(config.draft_ms, LEAST_DRAFT_MS)
        rest = latency.edge_sd(tokens, tau, gamma, draft, verify, one_way_ms)
    elif method.cloud_drafts:
        draft = max(config.draft_ms_in_cloud, LEAST_DRAFT_MS)
        rest = latency.cloud_sd(tokens, tau, gamma, draft, verify, one_way_ms)
    else:
        rest = latency.cloud_ar(tokens, verify, one_way_ms)
    return (config.rtt_ms + verify + rest) / 1e3


def in_words(seconds: float) -> str:
    """A duration as text: seconds below 90 s, else minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

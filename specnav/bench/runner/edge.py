# SPDX-License-Identifier: Apache-2.0
"""The part of a run in the bench's own process: the edge's models, the link, and all contestants.

A *contestant* answers prompts and can be measured. This module has the methods over edge and cloud.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from cloud_verifier.serving import settle_memory
from specdec.edge.decoder import EdgeDecoder, connect
from specdec.edge.stats import AnswerStats
from specdec.link.channel import Link
from specdec.link.shaping import LinkProfile
from specdec.methods import get_method
from specdec.models import GgufOptions, LoadedModel, Prompt, load_draft, load_model
from specdec.models.split import FrontPart
from specdec.models.threads import set_threads
from specdec.models.timing.pacing import LATE, Pacer, pace
from specdec.options import RESUME_TIMEOUT_S, GenerationOptions
from specnav.bench.data.latency import forward_ms
from specnav.bench.data.names import ORACLES
from specnav.bench.records.bench import AnswerRecord, MeasuredAnswer
from specnav.bench.records.floor import floor_ms
from specnav.bench.settings import BenchConfig
from specnav.results.demo import percentile
from specnav.results.trace import Span


class Contestant(Protocol):
    """Answers one prompt at a time."""

    @property
    def name(self) -> str:
        """Its name in the table."""
        ...

    def answer(self, prompt: Prompt, options: GenerationOptions) -> MeasuredAnswer:
        """One answer, measured."""
        ...


class EdgeContestant:
    """A method over a link to a verifier."""

    def __init__(
        self,
        name: str,
        link: Link,
        draft: LoadedModel,
        gamma: int,
        profile: LinkProfile,
        resume_timeout_s: float,
        front: LoadedModel | None = None,
    ) -> None:
        """Make the decoder. Raises OptionsError.

        profile: the emulated link, needed for the floor. front: the target model, for a split method.
        """
        self.name = name
        self._method = get_method(name)
        self._profile = profile
        self._decoder = EdgeDecoder(
            link,
            draft if self._method.drafts else None,
            method=name,
            gamma=gamma,
            resume_timeout_s=resume_timeout_s,
            clock=time.perf_counter,
            front_model=front if self._method.split else None,
            keep_bytes=0,  # reuse no cache between questions, as on the verifier
        )

    def answer(self, prompt: Prompt, options: GenerationOptions) -> MeasuredAnswer:
        """One answer over the link. Raises specdec's errors."""
        started = time.perf_counter()
        ids = [token for chunk in self._decoder.generate(prompt, options) for token in chunk]
        wall_ms = (time.perf_counter() - started) * 1e3
        stats = self._decoder.stats
        rounds = list(stats.rounds)
        timeline = [Span(s.lane, s.name, s.start_s * 1e3, s.end_s * 1e3, s.size) for s in stats.timeline]
        return MeasuredAnswer(
            ids=ids,
            finish=stats.finish,
            wall_ms=wall_ms,
            ttft_ms=stats.ttft_ms,
            rounds=rounds,
            timeline=timeline,
            draft_forwards=self._draft_forwards(stats),
            verify_forwards=len(rounds),
            floor_ms=floor_ms(timeline, self._profile),
            prompt_bytes=stats.prompt_bytes,
            resumes=stats.resumes,
            predrafts=stats.predrafts,
            predraft_hits=stats.predraft_hits,
        )

    def _draft_forwards(self, stats: AnswerStats) -> int | None:
        if self._method.cloud_drafts:  # a chain in the cloud: one forward per token
            return sum(one.drafted for one in stats.rounds)
        return stats.draft_forwards if self._method.drafts else None


@dataclass(frozen=True)
class BenchEdge:
    """The loaded edge.

    front: the target, for methods that run its first layers on the edge. oracle: the target for the oracles, which pace
    it themselves. notes: remarks for the report.
    """

    config: BenchConfig
    methods: tuple[str, ...]
    draft: LoadedModel
    front: LoadedModel | None
    oracle: LoadedModel | None
    notes: tuple[str, ...]

    def contestants(self, stack: ExitStack, endpoint: str) -> list[Contestant]:
        """Connect and make every contestant. Raises LinkLost, OptionsError."""
        config = self.config
        profile = config.profile()
        outage_s = max((duration for _, duration in profile.outages), default=0.0)
        link = stack.enter_context(
            connect(
                endpoint,
                connect_timeout_s=10.0,
                reply_timeout_s=2.0 + 4 * config.rtt_ms / 1e3 + (30.0 if config.loss else 0.0),
                round_timeout_s=60.0 + outage_s + config.rtt_ms / 1e3 + 64 * config.verify_ms / 1e3,
            )
        )
        found: list[Contestant] = []
        for name in self.methods:
            if name in ORACLES:
                from specnav.bench.runner.oracles import OracleContestant

                assert self.oracle is not None
                assistant = self.draft if name == "hf-assisted" else None
                pacing = (config.verify_ms, config.draft_ms_in_cloud)
                found.append(OracleContestant(name, self.oracle, assistant, config.gamma, *pacing))
            else:
                patience = RESUME_TIMEOUT_S + outage_s
                found.append(
                    EdgeContestant(name, link, self.draft, config.gamma, profile, patience, self.front)
                )
        return found


def pacing_notes(edge: BenchEdge, answers: Sequence[AnswerRecord]) -> list[str]:
    """Notes on whether the forwards of both sides kept their paced times."""
    config, pacer = edge.config, edge.draft.runner.pacer
    notes = []
    if isinstance(pacer, Pacer) and pacer.forwards:
        notes.append(draft_pace(pacer.forwards, pacer.late, pacer.mean, pacer.worst))
    elif config.acceptance and not config.draft_ms:
        notes.append("draft forwards are not paced: each takes as long as the target's (--draft-ms)")
    if config.verify_ms and (words := verify_pace(answers, config.verify_ms)):
        notes.append(words)
    return notes


def load_edge(config: BenchConfig, methods: Sequence[str]) -> BenchEdge:
    """Load the models that the methods need on the edge, and pace them. Raises ModelError, OptionsError."""
    how: dict[str, Any] = {"device": config.device, "dtype": config.dtype, "quantize": config.quantize}
    drafts = {**how, "quantize": config.quantize if config.draft_quantize is None else config.draft_quantize}
    gguf = GgufOptions.read(config.gguf)
    draft = load_draft(config.draft_model, **drafts, gguf=gguf, compile=config.compile_draft)
    alike = {**how, "deterministic": config.deterministic, "compile": config.compile}
    oracle = load_model(config.target_model, **alike) if set(methods) & set(ORACLES) else None
    splits = [name for name in methods if name not in ORACLES and get_method(name).split]
    front = load_model(config.target_model, **alike) if splits else None
    for spoken in (oracle, draft if "hf-assisted" in methods else None):
        if spoken is not None:
            _ = spoken.hf_model  # loaded before memory is settled
    set_threads(0, oracle or front or draft)
    settle_memory()
    pace(draft, config.draft_ms)
    notes = []
    if front is not None:
        pace(front, config.verify_ms)
        layers = front.runner.layer_count
        for name in splits:
            held = FrontPart(front, get_method(name).front_layers).layers
            notes.append(
                f"{name}: the edge holds {held} of the target's {layers} layers"
                + (" and takes as long for a layer as the cloud" if config.verify_ms else "")
            )
    return BenchEdge(config, tuple(methods), draft, front, oracle, tuple(notes))


FEW = 0.05
"""Largest share of late forwards that still counts as keeping the pace."""
MEAN_LATE = 1.02
VERIFIED_LATE = 1.05
PLAIN = ("ar", "sd")
"""Methods for which the rows of a forward are known: the previous token and the draft."""


def draft_pace(forwards: int, late: int, mean: float, worst: float) -> str:
    """A note on whether the edge's forwards kept their paced times.

    late: number of forwards that took longer than LATE times their paced time. mean, worst: mean and largest ratio of
    measured to paced time.
    """
    within = f"{100 * (1 - late / forwards):.0f} % within {LATE:g} times, on average {mean:.3f} times"
    if late <= FEW * forwards and mean <= MEAN_LATE:
        return f"{forwards} draft forwards kept their paced times ({within})"
    return (
        f"draft forwards did NOT keep their paced times: of {forwards} {within}, the longest {worst:.1f} times: the "
        "machine is too slow or too busy for these times"
    )


def verify_pace(answers: Sequence[AnswerRecord], paced_ms: float) -> str:
    """A note on whether the cloud's forwards kept their paced times, from verdicts of PLAIN methods; "" if none."""
    ratios = []
    for answer in answers:
        if answer.method in PLAIN and get_method(answer.method).name == answer.method:
            for one in answer.rounds[1:]:
                ratios.append(one.verify_ms / forward_ms(paced_ms, 1 + one.drafted))
    median = percentile(ratios, 50)
    if median is None:
        return ""
    late = sum(ratio > LATE for ratio in ratios) / len(ratios)
    if median <= VERIFIED_LATE and late <= FEW:
        return f"{len(ratios)} forwards of the target kept their paced times (median {median:.3f} times)"
    return (
        f"forwards of the target did NOT keep their paced times: the median took {median:.2f} times as long, "
        f"{100 * late:.0f} % over {LATE:g} times: the machine is too slow or too busy for these times"
    )

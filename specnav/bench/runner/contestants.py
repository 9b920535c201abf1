# SPDX-License-Identifier: Apache-2.0
"""Contestants: anything that answers a prompt and can be measured. This module has the methods over edge and cloud."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from specdec.edge.decoder import EdgeDecoder
from specdec.edge.stats import AnswerStats
from specdec.link.channel import Link
from specdec.link.shaping import LinkProfile
from specdec.methods import get_method
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specnav.bench.records.bench import MeasuredAnswer
from specnav.bench.records.floor import floor_ms
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
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Make the decoder. Raises OptionsError.

        profile: the emulated link, needed for the floor. front: the target model, for a split method.
        """
        self.name = name
        self._method = get_method(name)
        self._profile = profile
        self._clock = clock
        self._decoder = EdgeDecoder(
            link,
            draft if self._method.drafts else None,
            method=name,
            gamma=gamma,
            resume_timeout_s=resume_timeout_s,
            clock=clock,
            front_model=front if self._method.split else None,
            keep_bytes=0,  # reuse no cache between questions, as on the verifier
        )

    def answer(self, prompt: Prompt, options: GenerationOptions) -> MeasuredAnswer:
        """One answer over the link. Raises specdec's errors."""
        started = self._clock()
        ids = [token for chunk in self._decoder.generate(prompt, options) for token in chunk]
        wall_ms = (self._clock() - started) * 1e3
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

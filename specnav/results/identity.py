# SPDX-License-Identifier: Apache-2.0
"""Decodes recorded answers again with the target alone, in one process, and compares token ids.

Answers whose prompt or frame was not recorded are not compared and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from specnav.results.demo import Comparison
from specnav.results.trace import Decision, EpisodeTrace, episode_folder

if TYPE_CHECKING:
    from specdec.models import Prompt

Decode = Callable[["Prompt"], list[int]]
T = TypeVar("T")


def every_nth(things: Sequence[T], most: int) -> list[T]:
    """At most `most` of the things, evenly spaced, including the first and the last."""
    if len(things) <= most or most <= 1:
        return list(things[:most])
    return [things[round(place * (len(things) - 1) / (most - 1))] for place in range(most)]


def comparable(run: Path, traces: Sequence[EpisodeTrace]) -> list[tuple[EpisodeTrace, Decision]]:
    """Decisions with a complete answer and recorded prompt and frame."""
    return [
        (trace, decision)
        for trace in traces
        for decision in trace.decisions
        if decision.prompt_ids
        and decision.token_ids
        and decision.complete
        and decision.frame
        and (episode_folder(run, trace.result.index) / decision.frame).exists()
    ]


def compare_with_target(run: Path, traces: Sequence[EpisodeTrace], decode: Decode, most: int) -> Comparison:
    """Decode up to `most` recorded answers again, spread over the run, and compare their ids.

    `decode` must use the limits of the recorded run, so that an answer that ended too early is detected.
    """
    from specdec.models import Prompt  # imports torch, which takes a second or two

    different, tokens = [], 0
    chosen = every_nth(comparable(run, traces), most)
    for trace, decision in chosen:
        jpeg = (episode_folder(run, trace.result.index) / decision.frame).read_bytes()
        prompt = Prompt(ids=tuple(decision.prompt_ids), images=(jpeg,))
        alone = decode(prompt)
        tokens += len(decision.token_ids)
        if list(alone) != list(decision.token_ids):
            different.append((trace.result.index, decision.index))
    return Comparison(len(chosen), tokens, tuple(different))

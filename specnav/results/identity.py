# SPDX-License-Identifier: Apache-2.0
"""Decoding recorded answers again with the target alone, in one process, and comparing token ids.

Only what was decoded again is counted; an answer whose prompt or frame was not recorded is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from specnav.results.demo import Comparison
from specnav.results.trace import Decision, EpisodeTrace, episode_folder

if TYPE_CHECKING:
    from specdec.models import Prompt

Decode = Callable[["Prompt"], list[int]]


def spread(count: int, most: int) -> list[int]:
    """Indices of at most `most` of `count` things, spread evenly, first and last included."""
    if count <= most:
        return list(range(count))
    if most <= 1:
        return [0][:most]
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


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
    """Decode up to `most` recorded answers again (spread over the run) and compare their ids.

    `decode` must use the limits of the recorded run, so that an answer that should have gone on is caught.
    """
    from specdec.models import Prompt  # brings torch: a second or two

    known = comparable(run, traces)
    different, tokens = [], 0
    chosen = [known[place] for place in spread(len(known), most)]
    for trace, decision in chosen:
        jpeg = (episode_folder(run, trace.result.index) / decision.frame).read_bytes()
        prompt = Prompt(ids=tuple(decision.prompt_ids), images=(jpeg,))
        alone = decode(prompt)
        tokens += len(decision.token_ids)
        if list(alone) != list(decision.token_ids):
            different.append((trace.result.index, decision.index))
    return Comparison(len(chosen), tokens, tuple(different))

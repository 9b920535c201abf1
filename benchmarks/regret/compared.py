# SPDX-License-Identifier: Apache-2.0
"""One fixed method against another in random worlds: what a choice along one axis is worth."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.regret.playing import language_of, play
from benchmarks.regret.worlds import random_world


class ComparedWorld(NamedTuple):
    """One world. ratio: speed of the first method over that of the second. hinted: whether the cloud has exits."""

    seed: int
    ratio: float
    hinted: bool


def compared_in(seed: int, first: str, second: str) -> ComparedWorld:
    """Simulate one world with both methods and the same text."""
    world = random_world(seed)
    language = language_of(world)
    ratio = play(world, first, language).tokens_per_s / play(world, second, language).tokens_per_s
    return ComparedWorld(seed, ratio, world.hint_at > 0.0)


def words(found: Sequence[ComparedWorld], first: str, second: str) -> list[str]:
    """The results in sentences, with and without early exits separately."""
    told = [f"{first} over {second}, tokens a second:"]
    for name, hinted in (("with hints", True), ("without hints", False)):
        ratios = [one.ratio for one in found if one.hinted is hinted]
        if ratios:
            told.append(
                f"{len(ratios)} worlds {name}: {median(ratios):.3f} (median; mean {fmean(ratios):.3f}, "
                f"least {min(ratios):.3f}, most {max(ratios):.3f})"
            )
    return told

# SPDX-License-Identifier: Apache-2.0
"""Bounds for the regret of `auto` in random worlds, from fixed methods alone."""

from __future__ import annotations

from statistics import fmean, median

import msgspec

from benchmarks.regret.language import SimulatedLanguage
from benchmarks.regret.playing import language_of, methods_in, play
from benchmarks.regret.study import ENOUGH, OF_AR
from benchmarks.regret.worlds import SimulatedWorld, random_world

_OTHER_TEXT = 500_009
_WINDOW_TOKENS = 32


class WorldBound(msgspec.Struct, frozen=True, kw_only=True):
    """The results in one world.

    informed, learned: shares of the best fixed method's speed. informed: that of the method which is best in this world
    with another text, as if chosen knowing the world but not the text; learned: that of `auto` when it has answered
    with the other text before. informed_of_ar, learned_of_ar: the same speeds over that of `ar`. scatter: the mean
    deviation of `sd` from its own mean speed over windows of an answer, that is, the error of a prediction that knows
    the mean; None without any window.
    """

    seed: int
    informed: float
    informed_of_ar: float
    learned: float
    learned_of_ar: float
    scatter: float | None


def bound_in(seed: int, most_answers: int = 4) -> WorldBound:
    """Simulate one world: its fixed methods with two texts, and `auto` with one text after the other."""
    world = random_world(seed, most_answers)
    own, other = language_of(world), SimulatedLanguage(seed + _OTHER_TEXT, world.fit, world.tokens)
    speeds = {name: play(world, name, own).tokens_per_s for name in methods_in(world)}
    elsewhere = {name: play(world, name, other).tokens_per_s for name in methods_in(world)}
    chosen = max(elsewhere, key=lambda name: elsewhere[name])
    learned = play(world, "auto", own, heard=other).tokens_per_s
    best, ar = max(speeds.values()), speeds["ar"]
    return WorldBound(
        seed=seed,
        informed=speeds[chosen] / best,
        informed_of_ar=speeds[chosen] / ar,
        learned=learned / best,
        learned_of_ar=learned / ar,
        scatter=_scatter(world, own),
    )


def _scatter(world: SimulatedWorld, language: SimulatedLanguage) -> float | None:
    windows: list[float] = []
    for answer in play(world, "sd", language).answers:
        took, gained = 0.0, 0
        for one in answer.rounds:
            took, gained = took + one.draft_ms + one.wait_ms, gained + one.gained
            if gained >= _WINDOW_TOKENS:
                windows.append(took / gained)
                took, gained = 0.0, 0
    if len(windows) < 2:
        return None
    mean = fmean(windows)
    return fmean(abs(one / mean - 1.0) for one in windows)


def words(found: list[WorldBound]) -> list[str]:
    """The results in sentences."""
    scatter = [one.scatter for one in found if one.scatter is not None]
    told = [
        f"{len(found)} worlds: the fixed method that is best with another text of the same world has "
        + _share([one.informed for one in found], [one.informed_of_ar for one in found]),
        "`auto` that has answered with the other text before has "
        + _share([one.learned for one in found], [one.learned_of_ar for one in found]),
    ]
    if scatter:
        told.append(
            f"`sd` itself is {100 * fmean(scatter):.1f} % from its own mean in windows of {_WINDOW_TOKENS} tokens "
            f"({len(scatter)} worlds): the error of a prediction that knew the mean."
        )
    return told


def _share(of_best: list[float], of_ar: list[float]) -> str:
    return (
        f"{median(of_best):.3f} (median; mean {fmean(of_best):.3f}, least {min(of_best):.3f}) of the best one's speed "
        f"with this text, {ENOUGH} of it in {sum(one >= ENOUGH for one in of_best)}, and {OF_AR} of the speed of `ar` "
        f"in {sum(one >= OF_AR for one in of_ar)} (least {min(of_ar):.3f})."
    )

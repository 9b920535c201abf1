"""What nobody can do better in random worlds: bounds for the regret of `auto`, from fixed methods alone."""

from __future__ import annotations

from statistics import fmean, median

import msgspec

from evaluation.regret.language import Language
from evaluation.regret.playing import language_of, methods_in, play
from evaluation.regret.study import ENOUGH
from evaluation.regret.worlds import World, random_world

_OTHER_TEXT = 500_009
_WINDOW_TOKENS = 32


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """One world. informed: of the best fixed method's speed, what that one has here which is best in this world with
    another text: a choice of somebody who knows the world but not what will be said. scatter: how far `sd` is from its
    own mean speed in windows of an answer, on average: the error of a promise that knows the mean; None without any.
    """

    seed: int
    informed: float
    scatter: float | None


def bound_in(seed: int, most_answers: int = 4) -> Bound:
    """One world, its fixed methods with two texts."""
    world = random_world(seed, most_answers)
    own, other = language_of(world), Language(seed + _OTHER_TEXT, world.fit, world.tokens)
    speeds = {name: play(world, name, own).tokens_per_s for name in methods_in(world)}
    elsewhere = {name: play(world, name, other).tokens_per_s for name in methods_in(world)}
    chosen = max(elsewhere, key=lambda name: elsewhere[name])
    return Bound(seed=seed, informed=speeds[chosen] / max(speeds.values()), scatter=_scatter(world, own))


def _scatter(world: World, language: Language) -> float | None:
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


def words(found: list[Bound]) -> list[str]:
    """The findings in sentences."""
    informed = [one.informed for one in found]
    scatter = [one.scatter for one in found if one.scatter is not None]
    told = [
        f"{len(found)} worlds: the fixed method that is best with another text of the same world has "
        f"{median(informed):.3f} (median; mean {fmean(informed):.3f}, least {min(informed):.3f}) of the best one's "
        f"speed with this text, and {ENOUGH} of it in {sum(one >= ENOUGH for one in informed)}."
    ]
    if scatter:
        told.append(
            f"`sd` itself is {100 * fmean(scatter):.1f} % from its own mean in windows of {_WINDOW_TOKENS} tokens "
            f"({len(scatter)} worlds): what a promise that knew the mean would be off by."
        )
    return told

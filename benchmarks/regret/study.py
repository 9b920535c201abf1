# SPDX-License-Identifier: Apache-2.0
"""The regret of `auto`: its speed over that of the best fixed method, and over that of `ar`, in each of many worlds."""

from __future__ import annotations

from statistics import fmean, median

import msgspec

from benchmarks.regret.playing import PlayedWorld, language_of, methods_in, play
from benchmarks.regret.worlds import SimulatedWorld, random_world
from specnav.bench.report.bench import WINDOW_TOKENS, mean_error, windows

ENOUGH = 0.95
"""The share of the best fixed method's speed that `auto` should reach."""
OF_AR = 0.97
"""The share of the speed of `ar` below which `auto` should never fall."""


class WorldRegret(msgspec.Struct, frozen=True, kw_only=True):
    """One world. speeds: tokens a second of every method, `auto` among them, prompts included.

    described: a description of the world. off: mean relative error of the speed that `auto` predicted, over windows of
    an answer; None if no window was long enough.
    """

    seed: int
    described: str
    tokens: int
    speeds: dict[str, float]
    off: float | None = None

    @property
    def best(self) -> str:
        """The fixed method that was fastest here."""
        return max((name for name in self.speeds if name != "auto"), key=lambda name: self.speeds[name])

    @property
    def of_best(self) -> float:
        """The speed of `auto` over the best fixed method's."""
        return self.speeds["auto"] / self.speeds[self.best]

    @property
    def of_ar(self) -> float:
        """The speed of `auto` over that of `ar`."""
        return self.speeds["auto"] / self.speeds["ar"]

    @property
    def kept(self) -> bool:
        """Whether `auto` reached both shares."""
        return self.of_best >= ENOUGH and self.of_ar >= OF_AR


class Regret(msgspec.Struct, frozen=True, kw_only=True):
    """The results of many worlds."""

    worlds: list[WorldRegret]

    def words(self) -> list[str]:
        """The results in sentences."""
        of_best, of_ar = [one.of_best for one in self.worlds], [one.of_ar for one in self.worlds]
        offs = [one.off for one in self.worlds if one.off is not None]
        count = len(self.worlds)
        found = [
            f"{count} worlds, simulated: `auto` had {median(of_best):.3f} (median; mean {fmean(of_best):.3f}, least "
            f"{min(of_best):.3f}) of the speed of the best fixed method.",
            f"It reached {ENOUGH} of that in {sum(one >= ENOUGH for one in of_best)} of {count}, and {OF_AR} of `ar` "
            f"in {sum(one >= OF_AR for one in of_ar)} (least {min(of_ar):.3f}; mean {fmean(of_ar):.2f} times `ar`).",
        ]
        for name in sorted({name for one in self.worlds for name in one.speeds if name != "auto"}):
            theirs = [
                one.speeds[name] / one.speeds[one.best] for one in self.worlds if name in one.speeds
            ]
            found.append(
                f"`{name}` alone: mean {fmean(theirs):.3f} of the best, {sum(x >= ENOUGH for x in theirs)} of "
                f"{len(theirs)} worlds at {ENOUGH} or more."
            )
        if offs:
            found.append(
                f"The predictions of `auto` were off by {100 * fmean(offs):.1f} % on average, over windows of "
                f"{WINDOW_TOKENS} tokens."
            )
        return found


def described(world: SimulatedWorld) -> str:
    """A description of a world in one line."""
    one = world.verify.for_rows(1)
    words = [
        f"Tq {one:.0f} ms (×{world.verify.for_rows(5) / one:.2f} with 5 rows)",
        f"Tp {world.draft.for_rows(1):.1f} ms",
        f"RTT {world.link.rtt_ms:.0f}±{world.link.jitter_ms:.0f}",
        f"easy {100 * world.fit.easy:.0f} %",
    ]
    words += [f"{len(world.phases) - 1} changes"] if len(world.phases) > 1 else []
    words += [f"shared core {world.contention:.1f}"] if world.contention else []
    words += [] if world.told else ["nothing told"]
    words += [f"several rows ×{world.misjudged:g} of the reported time"] if world.misjudged != 1.0 else []
    words += ["hints"] if world.hint_at else []
    words += [f"{100 * world.fit.repeats:.0f} % repeated"] if world.fit.repeats else []
    return ", ".join(words)


def regret_in(
    seed: int, most_answers: int = 4, repeats: float = 0.0, misjudged: float = 1.0
) -> WorldRegret:
    """Simulate one world with all methods."""
    world = random_world(seed, most_answers, repeats, misjudged)
    language = language_of(world)
    played = {name: play(world, name, language) for name in (*methods_in(world), "auto")}
    return WorldRegret(
        seed=seed,
        described=described(world),
        tokens=world.tokens,
        speeds={name: one.tokens_per_s for name, one in played.items()},
        off=_off(played["auto"]),
    )


def _off(played: PlayedWorld) -> float | None:
    return mean_error([one for answer in played.answers for one in windows(answer.rounds)])

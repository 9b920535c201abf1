# SPDX-License-Identifier: Apache-2.0
"""Finds what a fleet needs by repeated simulation, method by method: GPUs needed, robots served, gain of one more GPU,
costs, round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from specdec.link.shaping import LinkProfile
from specnav.plan.simulated.pair import METHODS, checked
from specnav.plan.simulated.records import FleetFigures, MethodPlan, SweepPoint, figures_of
from specnav.plan.simulated.simulation import EMPTY, Fleet, Window, simulate
from specnav.results.errors import EvaluationError

MOST_ROBOTS, MOST_GPUS = 1_000_000, 100_000
FINE, COARSE = 0.01, 0.04
"""Relative precision at which a search for a number ends, if that is coarser than 1."""
ENOUGH, FEW = 1500, 600
"""Least number of measured decisions in a run."""
STEP_OUT = 1.15
NUDGE = 1.02
POOL = 4
"""GPUs on which methods are compared for `auto`."""
CROWDED = 4.0
"""A run is aborted if the decisions in progress exceed those that the promise allows by this factor."""
PART = 500
"""Least number of robots in a part; a fleet of at least two parts is searched by one of them."""
MORE = 0.25
"""Share of the GPUs that is added to measure the gain per additional GPU."""


@dataclass(frozen=True)
class Promise:
    """A bound in milliseconds that 95 % of the decisions meet, in total or per token of the answer."""

    ms: float
    of: Literal["decision", "token"] = "decision"

    def value(self, figures: FleetFigures) -> float:
        """The value that the bound limits."""
        return figures.p95(self.of)[0]

    def held(self, figures: FleetFigures) -> bool:
        """Whether the promise was kept."""
        return not figures.overloaded and self.value(figures) <= self.ms

    @property
    def words(self) -> str:
        """The promise as text, e.g. "p95 of a decision within 2000 ms"."""
        return f"p95 of a {self.of} within {self.ms:g} ms"


@dataclass
class Planner:
    """Simulates fleets on request, each one only once.

    fleet: its numbers of robots and GPUs are varied. promise: the bound to keep. methods: those from which `auto`
    chooses. coarse: fewer decisions per run, and a less precise search. auto: the method that `auto` uses on each link;
    None: find it by simulation.
    """

    fleet: Fleet
    promise: Promise
    seed: int
    methods: Sequence[str] = METHODS
    coarse: bool = False
    auto: Mapping[LinkProfile, str] | None = None
    seen: dict[tuple[str, int, int], FleetFigures] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._decisions, self._exact = (FEW, COARSE) if self.coarse else (ENOUGH, FINE)

    def window(self, robots: int) -> Window:
        """The simulated time: long enough for the needed number of decisions and for several times the promise."""
        work = self.fleet.work
        whole = self.promise.ms * (1.0 if self.promise.of == "decision" else work.answer_mean)
        measure = max(3 * whole, 1e3 * self._decisions / (robots * work.rate))
        return Window(2 * whole + 2e3, measure, 2 * whole)

    def look(self, method: str, robots: int, gpus: int) -> FleetFigures:
        """Simulate one fleet, or return its known figures. Raises EvaluationError."""
        key = (method, robots, gpus)
        if key not in self.seen:
            work = replace(self.fleet.work, robots=robots)
            fleet = replace(self.fleet, work=work, gpus=gpus)
            whole = self.promise.ms * (1.0 if self.promise.of == "decision" else work.answer_mean)
            allowed = max(50.0, CROWDED * robots * work.rate * whole / 1e3)
            most_open = allowed if work.arrivals != "after" else float("inf")
            window = self.window(robots)
            auto = self.best_on_links() if method == "auto" else EMPTY
            played = simulate(fleet, method, self.seed, window, most_open=most_open, auto=auto)
            self.seen[key] = figures_of(played, method, work, gpus)
        return self.seen[key]

    def best_on_links(self) -> Mapping[LinkProfile, str]:
        """For each link, the method that serves the most robots; ties go to the one fastest for a single robot."""
        if self.auto is None:
            found: dict[LinkProfile, str] = {}
            for profile, _ in self.fleet.links:
                fleet = replace(self.fleet, links=((profile, 1.0),))
                alone = Planner(fleet, self.promise, self.seed, self.methods, coarse=True)
                found[profile] = alone._best()
            self.auto = found
        return self.auto

    def _best(self) -> str:
        ranks: dict[str, tuple[int, float]] = {}
        guess = 0
        named = [name for name in self.methods if name != "auto"]
        for method in named or [name for name in METHODS if name != "auto"]:
            most = self.most_robots(method, POOL, guess)
            guess = max(guess, most)
            ranks[method] = (most, -self.promise.value(self.look(method, 1, 1)))
        return max(ranks, key=lambda name: ranks[name])

    def held(self, method: str, robots: int, gpus: int) -> bool:
        """Whether a fleet keeps the promise."""
        return self.promise.held(self.look(method, robots, gpus))

    def most_robots(self, method: str, gpus: int, guess: int = 0) -> int:
        """How many robots `gpus` GPUs serve; 0 if the promise fails even for one robot."""
        if not self.held(method, 1, gpus):
            return 0
        factor = STEP_OUT if guess else 2.0
        return self._turn(lambda robots: self.held(method, robots, gpus), 1, guess or 2 * gpus, factor, MOST_ROBOTS)[0]

    def enough_gpus(self, method: str, robots: int, guess: int) -> int | None:
        """The guess from a part of the fleet, or somewhat more if that is too few; None if a third more is too few."""
        gpus = guess
        while not self.held(method, robots, gpus):
            gpus = max(gpus + 1, int(gpus * NUDGE))
            if 3 * gpus > 4 * guess + 3:
                return None
        return gpus

    def gpus_needed(self, method: str, robots: int, guess: int = 1) -> int | None:
        """The fewest GPUs that keep the promise for `robots` robots; None if no number does."""
        if not self.held(method, 1, 1):
            return None
        gpus = self._turn(lambda gpus: not self.held(method, robots, gpus), 0, guess, STEP_OUT, MOST_GPUS)[1]
        return gpus if gpus <= MOST_GPUS else None

    def _turn(
        self, holds: Callable[[int], bool], low: int, guess: int, factor: float, limit: int
    ) -> tuple[int, int]:
        """(a number that holds, a larger one that does not): steps outwards from the guess, then bisects.

        low: holds. The second number is above `limit` if no number up to it was found that does not hold.
        """
        least, high = low, max(low + 1, guess)
        if holds(high):
            while holds(high):
                low, high = high, max(high + 1, int(high * factor))
                if high > limit:
                    return low, high
        else:
            while low == least and high > least + 1:
                down = max(least, min(high - 1, int(high / factor)))
                if down == least or holds(down):
                    low = down
                    break
                high = down
        while high - low > max(1, int(self._exact * low)):
            middle = (low + high) // 2
            if holds(middle):
                low = middle
            else:
                high = middle
        return low, high


def check_possible(planner: Planner, methods: Sequence[str]) -> None:
    """Raise EvaluationError if no method keeps the promise even for a single robot."""
    alone = {method: planner.look(method, 1, 1) for method in methods}
    if any(planner.promise.held(figures) for figures in alone.values()):
        return
    best = min(alone, key=lambda method: planner.promise.value(alone[method]))
    raise EvaluationError(
        f"{planner.promise.words} is out of reach on this link and GPU: one robot alone on a GPU takes "
        f"{planner.promise.value(alone[best]):.0f} ms ({best}); raise the promise, or use a faster GPU or link"
    )


@dataclass(frozen=True)
class PlanQuestion:
    """The question of a plan.

    fleet: its number of GPUs is ignored. gpus: available GPUs; 0: as many as the best method needs. gpu_price,
    edge_price: dollars per hour for a GPU and for an edge that drafts. rtts: round trips at which to compare the
    methods on one GPU, milliseconds.
    """

    fleet: Fleet
    promise: Promise
    methods: tuple[str, ...]
    gpus: int = 0
    gpu_price: float = 0.0
    edge_price: float = 0.0
    rtts: tuple[float, ...] = ()
    seed: int = 0

    @property
    def steps(self) -> int:
        """Number of steps for a progress bar."""
        return 2 * len(self.methods) + len(self.methods) * len(self.rtts)


def answer_methods(asked: PlanQuestion, step: Callable[[str], None]) -> Iterator[tuple[int, MethodPlan]]:
    """Yield (number of available GPUs, plan of a method) for each method.

    For a large fleet, a part with its share of the GPUs is searched, and the result is tested with the whole fleet.
    step: called with a description before each step. Raises EvaluationError if the promise is out of reach.
    """
    robots = asked.fleet.work.robots
    parts = max(1, robots // PART)
    part = Planner(asked.fleet, asked.promise, asked.seed, asked.methods)
    step("one robot alone")
    check_possible(part, [name for name in asked.methods if name != "auto"] or asked.methods)
    whole = part
    if parts > 1:
        auto = part.best_on_links() if "auto" in asked.methods else None
        whole = Planner(asked.fleet, asked.promise, asked.seed, asked.methods, auto=auto)
    needed: dict[str, int | None] = {}
    for method in asked.methods:
        step(f"{method}: GPUs for {robots} robots")
        borne = part.most_robots(method, 1)
        guess = None
        if borne:
            guess = part.gpus_needed(method, max(1, robots // parts), max(1, round(robots / parts / borne)))
        if guess is not None and parts > 1:
            guess = whole.enough_gpus(method, robots, guess * parts)
        needed[method] = guess
    found = [count for count in needed.values() if count]
    gpus = asked.gpus or min(found, default=1)
    for method in asked.methods:
        step(f"{method}: robots on {gpus} GPUs, and the gain of more")
        yield gpus, _plan(whole, part, asked, method, gpus, needed[method])


def _plan(
    whole: Planner, part: Planner, asked: PlanQuestion, method: str, gpus: int, needed: int | None
) -> MethodPlan:
    """Plan one method. whole: planner of the whole fleet. part: planner of a part, with a whole number of GPUs."""
    robots = asked.fleet.work.robots
    parts = max(1, min(robots // PART, gpus))
    some = max(1, round(gpus / parts))
    guess = max(2, round(robots * some / needed)) if needed else 0
    most = part.most_robots(method, some, guess)
    more = max(1, round(some * MORE))  # the gain of one GPU among many would drown in the search's tolerance
    most_more = part.most_robots(method, some + more, max(2, round(most * (some + more) / some))) if most else 0
    here = whole.look(method, robots, gpus)
    borne = round(most * gpus / some)
    if asked.promise.held(here):  # the whole fleet is more reliable than a part
        borne = max(borne, robots)
    loads = sorted(
        (round(figures.robots * gpus / some), *figures.p95(asked.promise.of))
        for (name, _, count), figures in part.seen.items()
        if name == method and count == some and not figures.overloaded
    )
    price = None
    if needed is not None:
        price = needed * asked.gpu_price / robots + asked.edge_price * checked(method).drafts
    return MethodPlan(
        method=method,
        needed=needed,
        most=borne,
        marginal=(most_more - most) / more,
        here=here,
        alone=part.look(method, 1, 1),
        at_needed=whole.look(method, robots, needed) if needed else None,
        dollars_robot_hour=price,
        loads=loads,
    )


def sweep_links(asked: PlanQuestion, step: Callable[[str], None]) -> Iterator[SweepPoint]:
    """Yield the methods' results on one GPU at other round trips, with all else as on the first link."""
    profile = asked.fleet.links[0][0]
    for rtt in asked.rtts:
        fleet = replace(asked.fleet, links=((replace(profile, rtt_ms=rtt), 1.0),))
        planner = Planner(fleet, asked.promise, asked.seed, asked.methods, coarse=True)
        robots: dict[str, int] = {}
        alone: dict[str, float] = {}
        for method in asked.methods:
            step(f"{method}: one GPU at a round trip of {rtt:g} ms")
            if method != "auto":
                robots[method] = planner.most_robots(method, 1)
                alone[method] = asked.promise.value(planner.look(method, 1, 1))
        yield SweepPoint(rtt_ms=rtt, robots=robots, alone_ms=alone)


def order(methods: Sequence[MethodPlan]) -> list[MethodPlan]:
    """Sort by GPUs needed; methods that cannot keep the promise come last."""
    return sorted(methods, key=lambda one: (one.needed is None, one.needed or 0, -one.most))

# SPDX-License-Identifier: Apache-2.0
"""Makes a plan, method by method: GPUs needed, robots served, gain of one more GPU, costs, round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from specnav.plan.simulated.pair import checked
from specnav.plan.simulated.records import MethodPlan, SweepPoint
from specnav.plan.simulated.search import Planner, Promise, check_possible
from specnav.plan.simulated.simulation import Fleet

PART = 500
"""Largest number of robots in a search; a larger fleet is treated as several parts of this size."""
MORE = 0.25
"""Share of the GPUs that is added to measure the gain per additional GPU."""


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

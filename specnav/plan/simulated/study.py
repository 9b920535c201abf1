# SPDX-License-Identifier: Apache-2.0
"""A plan, method by method: GPUs needed, robots borne, what one GPU more brings, costs, round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from specnav.plan.simulated.measures import FleetFigures
from specnav.plan.simulated.pair import checked
from specnav.plan.simulated.records import MethodPlan, SweepPoint
from specnav.plan.simulated.search import Planner, Promise, check_possible
from specnav.plan.simulated.simulation import Fleet

PART = 500
"""Robots that are searched with; a larger fleet is taken to be this many of these."""
MORE = 0.25
"""Share of the GPUs that is added to see what one more brings."""


@dataclass(frozen=True)
class PlanQuestion:
    """fleet: its number of GPUs is not looked at. gpus: that are there, 0: as many as the best method needs. Prices:
    dollars an hour, of a GPU and of an edge that drafts. rtts: round trips to compare one GPU at, ms.
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
        """How much there is to do, for a progress bar."""
        return 2 * len(self.methods) + len(self.methods) * len(self.rtts)


def answer_methods(
    asked: PlanQuestion, step: Callable[[str], None], tell: Callable[[FleetFigures], None] = lambda figures: None
) -> Iterator[tuple[int, MethodPlan]]:
    """Plans as they are made, each with the number of GPUs that "given" means. step: called with what is being done,
    before.

    Of a large fleet a part with its share of the GPUs is searched, and the result tried with all of it. Raises
    EvaluationError where the promise is out of reach.
    """
    robots = asked.fleet.work.robots
    parts = max(1, robots // PART)
    part = Planner(asked.fleet, asked.promise, asked.seed, asked.methods, tell=tell)
    step("one robot alone")
    check_possible(part, [name for name in asked.methods if name != "auto"] or asked.methods)
    whole = part
    if parts > 1:
        auto = part.best_on_links() if "auto" in asked.methods else None
        whole = Planner(asked.fleet, asked.promise, asked.seed, asked.methods, auto=auto, tell=tell)
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
        step(f"{method}: robots on {gpus} GPUs, and what more would bring")
        yield gpus, _plan(whole, part, asked, method, gpus, needed[method])


def _plan(
    whole: Planner, part: Planner, asked: PlanQuestion, method: str, gpus: int, needed: int | None
) -> MethodPlan:
    """part: the planner that searches; a part of the fleet has as many GPUs as make whole numbers."""
    robots = asked.fleet.work.robots
    parts = max(1, min(robots // PART, gpus))
    some = max(1, round(gpus / parts))
    guess = max(2, round(robots * some / needed)) if needed else 0
    most = part.most_robots(method, some, guess)
    more = max(1, round(some * MORE))  # of one GPU more than many the search's own tolerance would be as large
    most_more = part.most_robots(method, some + more, max(2, round(most * (some + more) / some))) if most else 0
    here = whole.look(method, robots, gpus)
    borne = round(most * gpus / some)
    if asked.promise.held(here):  # the fleet itself says more than a part of it
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


def sweep_links(
    asked: PlanQuestion, step: Callable[[str], None], tell: Callable[[FleetFigures], None] = lambda figures: None
) -> Iterator[SweepPoint]:
    """One GPU at other round trips, all else as on the first link."""
    profile = asked.fleet.links[0][0]
    for rtt in asked.rtts:
        fleet = replace(asked.fleet, links=((replace(profile, rtt_ms=rtt), 1.0),))
        planner = Planner(fleet, asked.promise, asked.seed, asked.methods, coarse=True, tell=tell)
        robots: dict[str, int] = {}
        alone: dict[str, float] = {}
        for method in asked.methods:
            step(f"{method}: one GPU at a round trip of {rtt:g} ms")
            if method != "auto":
                robots[method] = planner.most_robots(method, 1)
                alone[method] = asked.promise.value(planner.look(method, 1, 1))
        yield SweepPoint(rtt_ms=rtt, robots=robots, alone_ms=alone)


def order(methods: Sequence[MethodPlan]) -> list[MethodPlan]:
    """Those that need the fewest GPUs first, those that cannot last."""
    return sorted(methods, key=lambda one: (one.needed is None, one.needed or 0, -one.most))

# SPDX-License-Identifier: Apache-2.0
"""Simulates one fleet for some time, with what its robots request: a discrete-event simulation on SimPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from specdec.link.shaping import LinkProfile
from specnav.plan.simulated.pair import SimulatedForwardTimes, SimulatedPair, checked, way_of
from specnav.plan.simulated.replica import Counted, ReplicaPolicy, SimulatedDirectory, SimulatedReplica
from specnav.plan.simulated.session import RobotSession, SimulatedDecision, SimulatedEdge
from specnav.results.errors import EvaluationError

if TYPE_CHECKING:
    import simpy

Arrivals = Literal["poisson", "periodic", "after"]
ARRIVALS: tuple[Arrivals, ...] = ("poisson", "periodic", "after")
EMPTY: Mapping[LinkProfile, str] = MappingProxyType({})
CHECKS = 20
"""How often a run is checked for overload, and its drain for decisions in progress."""


@dataclass(frozen=True)
class Workload:
    """Decisions: the robot sends a prompt with a picture and receives an answer.

    A robot has one decision in progress at a time. The next waits for it on the robot, and this wait counts.
    rate: decisions per second and robot. arrivals: "poisson"; "periodic", each robot with its own phase; or "after",
    where the next decision begins an exponential pause with mean 1/rate seconds after the previous one's end (at once
    if rate is infinite). prompts, answers: lengths in tokens; each decision draws one uniformly. picture_bytes: sent
    with each prompt. picture_ms: time for the verifier to prepare a picture, in addition to its forwards.
    """

    robots: int
    rate: float
    arrivals: Arrivals = "poisson"
    prompts: tuple[int, ...] = (900,)
    answers: tuple[int, ...] = (40,)
    picture_bytes: int = 30_000
    picture_ms: float = 0.0

    def __post_init__(self) -> None:
        """Check the values. Raises EvaluationError."""
        if self.robots < 1:
            raise EvaluationError("a fleet has at least one robot")
        if not self.rate > 0:
            raise EvaluationError("a robot that decides nothing needs no verifier: give a rate above 0")
        if not self.prompts or min(self.prompts) < 1 or not self.answers or min(self.answers) < 1:
            raise EvaluationError("a prompt and an answer have at least one token")

    @property
    def answer_mean(self) -> float:
        """Mean length of an answer in tokens."""
        return sum(self.answers) / len(self.answers)


def arrivals_named(name: str) -> Arrivals:
    """The kind of arrivals of this name. Raises EvaluationError."""
    for kind in ARRIVALS:
        if kind == name:
            return kind
    raise EvaluationError(f"arrivals {name!r} are unknown: choose {', '.join(ARRIVALS)}")


def arrivals_of(work: Workload, until_ms: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(times at which decisions are due before `until_ms`, sorted; their robots). Not for "after", which is unknown.

    The same seed gives the same decisions for every method.
    """
    drawn = np.random.default_rng(seed)
    if work.arrivals == "periodic":
        gap = 1e3 / work.rate
        phases = drawn.uniform(0.0, gap, work.robots)
        count = int(until_ms / gap) + 1
        times = (phases[:, None] + gap * np.arange(count)[None, :]).ravel()
        robots = np.repeat(np.arange(work.robots), count)
        kept = times < until_ms
        times, robots = times[kept], robots[kept]
    else:  # independent Poisson robots: one Poisson stream with robots drawn at random
        count = int(drawn.poisson(work.robots * work.rate * until_ms / 1e3))
        times = drawn.uniform(0.0, until_ms, count)
        robots = drawn.integers(0, work.robots, count)
    order = np.argsort(times, kind="stable")
    return times[order], robots[order]


@dataclass(frozen=True)
class Fleet:
    """The fleet to simulate.

    links: (profile, share of the robots). kept: share of a prompt that the robot's last verifier has cached; above 0
    the directory prefers that verifier.
    """

    work: Workload
    pair: SimulatedPair
    target: SimulatedForwardTimes
    gpus: int
    links: tuple[tuple[LinkProfile, float], ...] = ((LinkProfile(), 1.0),)
    policy: ReplicaPolicy = field(default_factory=ReplicaPolicy)
    kept: float = 0.0

    def __post_init__(self) -> None:
        """Check the fleet. Raises EvaluationError."""
        if self.gpus < 1:
            raise EvaluationError("a fleet needs at least one GPU")
        if not self.links or min(share for _, share in self.links) <= 0:
            raise EvaluationError("each link needs a share of the robots above 0")
        longest = max(self.work.prompts) + max(self.work.answers)
        if longest > self.policy.kv_tokens:
            raise EvaluationError(
                f"one session of {longest} tokens does not fit into a cache of {self.policy.kv_tokens:.0f}: give more"
            )


@dataclass(frozen=True)
class Window:
    """Milliseconds of a run: warm-up, measured time, and the wait for the last decisions."""

    warm_ms: float
    measure_ms: float
    drain_ms: float

    @property
    def end_ms(self) -> float:
        """End of the measured time."""
        return self.warm_ms + self.measure_ms


@dataclass(frozen=True)
class FleetRun:
    """The result of a run.

    decisions: those due in the measured time, including unfinished ones. overloaded: the run was aborted because of too
    many decisions in progress. lasted_ms: measured time, shorter in an aborted run.
    """

    decisions: list[SimulatedDecision]
    window: Window
    overloaded: bool
    lasted_ms: float
    counted: Counted


def simpy_module() -> Any:
    """The module SimPy, which only this package needs. Raises EvaluationError if it is missing."""
    try:
        import simpy
    except ImportError:
        raise EvaluationError("simulating a fleet needs SimPy: pip install 'specnav[plan]'") from None
    return simpy


@dataclass
class _FleetState:
    """The state of one run; see `simulate`."""

    fleet: Fleet
    method: str
    seed: int
    window: Window
    most_open: float
    keep: bool
    auto: Mapping[LinkProfile, str]
    overloaded: bool = False
    in_progress: int = 0
    decisions: list[SimulatedDecision] = field(default_factory=list)

    def __post_init__(self) -> None:
        fleet, window = self.fleet, self.window
        self.env: simpy.Environment = simpy_module().Environment()
        self.counted = Counted(window.warm_ms, window.end_ms)
        self.replicas = [
            SimulatedReplica(self.env, fleet.target, fleet.pair.cloud_draft, fleet.policy, self.counted)
            for _ in range(fleet.gpus)
        ]
        self.directory = SimulatedDirectory(self.replicas, fleet.kept > 0)
        self.edges = [
            SimulatedEdge(number, profile, self.seed * 1_000_003 + number)
            for number, profile in zip(range(fleet.work.robots), _dealt(fleet.links), strict=False)
        ]
        self.drawn = Random(self.seed)
        self.ways = {
            profile: way_of(
                self.auto[profile] if self.method == "auto" else self.method, fleet.pair, fleet.target, profile.rtt_ms
            )
            for profile, _ in fleet.links
        }

    def due(self, edge: SimulatedEdge, now: float) -> None:
        """A robot requests a decision."""
        self.in_progress += 1
        self.overloaded = self.overloaded or self.in_progress > self.most_open
        if edge.busy:
            edge.waiting.append(now)
        else:
            self.begin(edge, now, now)

    def begin(self, edge: SimulatedEdge, due_ms: float, now: float) -> None:
        edge.busy = True
        fleet, work, drawn = self.fleet, self.fleet.work, self.drawn
        replica, knows = self.directory.choose(edge.number)
        way = self.ways[edge.profile]
        prompt, answer = drawn.choice(work.prompts), drawn.choice(work.answers)
        decision = SimulatedDecision(edge.number, due_ms, now, prompt, answer, way.name)
        if self.window.warm_ms <= due_ms < self.window.end_ms or self.keep:
            self.decisions.append(decision)
        picture_ms = 0.0
        if work.picture_ms:  # pictures are prepared one after another, parallel to forwards
            replica.pictures_free_ms = max(now, replica.pictures_free_ms) + work.picture_ms
            picture_ms = replica.pictures_free_ms - now
        session = RobotSession(
            decision, edge, way, fleet.pair, replica, drawn, self.ended, self.counted, self.keep
        )
        session.open(now, work.picture_bytes, int(fleet.kept * prompt) if knows else 0, picture_ms)

    def ended(self, session: RobotSession, at_ms: float) -> None:
        """Schedule the end of a session for `at_ms`, when its answer is complete at the robot."""
        self._after(max(0.0, at_ms - self.env.now), lambda: self._over(session))

    def _over(self, session: RobotSession) -> None:
        edge, now = session.edge, self.env.now
        session.replica.leave(session)
        self.in_progress -= 1
        edge.busy = False
        if edge.waiting:
            self.begin(edge, edge.waiting.pop(0), now)
        elif self.fleet.work.arrivals == "after":
            rate = self.fleet.work.rate
            self.later(self.drawn.expovariate(rate / 1e3) if rate < float("inf") else 0.0, edge)

    def later(self, pause_ms: float, edge: SimulatedEdge) -> None:
        """Schedule a robot's next decision after a pause."""
        if self.env.now + pause_ms >= self.window.end_ms:
            return
        self._after(pause_ms, lambda: self.due(edge, self.env.now))

    def _after(self, ms: float, act: Callable[[], None]) -> None:
        event = self.env.timeout(ms)
        assert event.callbacks is not None
        event.callbacks.append(lambda _: act())

    def arrivals(self) -> Generator[simpy.Event, None, None]:
        """Process that makes all robots' decisions due."""
        times, robots = arrivals_of(self.fleet.work, self.window.end_ms, self.seed)
        for at_ms, robot in zip(times.tolist(), robots.tolist(), strict=True):
            if at_ms > self.env.now:
                yield self.env.timeout(at_ms - self.env.now)
            self.due(self.edges[robot], self.env.now)

    def play(self) -> None:
        """Run until all measured decisions have ended, the drain is over, or the run is aborted."""
        env, window, work = self.env, self.window, self.fleet.work
        if work.arrivals == "after":
            for edge in self.edges:
                spread = 1e3 / work.rate if work.rate < float("inf") else min(1e3, 50.0 * work.robots)
                self.later(self.drawn.uniform(0.0, spread), edge)
        else:
            env.process(self.arrivals())
        for number in range(1, CHECKS + 1):
            env.run(until=number * window.end_ms / CHECKS)
            if self.overloaded:
                return
        while env.now < window.end_ms + window.drain_ms and self._unfinished():
            env.run(until=env.now + max(1.0, window.drain_ms / CHECKS))

    def _unfinished(self) -> bool:
        if self.keep:  # only delivered chunks are measured
            return False
        return any(edge.waiting for edge in self.edges) or any(one.ended_ms < 0 for one in self.decisions)


def _dealt(links: Sequence[tuple[LinkProfile, float]]) -> Generator[LinkProfile, None, None]:
    """Yield profiles in turn, each in proportion to its share."""
    given = [0.0] * len(links)
    whole = sum(share for _, share in links)
    for number in itertools.count(1):
        place = max(range(len(links)), key=lambda one: links[one][1] / whole * number - given[one])
        given[place] += 1
        yield links[place][0]


def simulate(
    fleet: Fleet,
    method: str,
    seed: int,
    window: Window,
    *,
    most_open: float = float("inf"),
    keep: bool = False,
    auto: Mapping[LinkProfile, str] = EMPTY,
) -> FleetRun:
    """Simulate a fleet with one method.

    Args:
        fleet: the fleet.
        method: one of `pair.METHODS`.
        seed: of all random draws.
        window: warm-up, measured time and drain.
        most_open: if more decisions are in progress or waiting, the run is aborted as overloaded.
        keep: record the time of each chunk and return the decisions of the whole run.
        auto: the method that `auto` uses on each link.

    Raises:
        EvaluationError: for an unknown method, or for `auto` without a method for each link.
    """
    checked(method)
    if method == "auto" and not all(profile in auto for profile, _ in fleet.links):
        raise EvaluationError("auto needs the best method of each link")
    run = _FleetState(fleet, method, seed, window, most_open, keep, auto)
    run.play()
    unbegun = [
        SimulatedDecision(edge.number, due, -1.0, 0, 1, method)
        for edge in run.edges
        for due in edge.waiting
        if window.warm_ms <= due < window.end_ms
    ]
    lasted_ms = max(1e-9, min(run.env.now, window.end_ms) - window.warm_ms)
    return FleetRun(run.decisions + unbegun, window, run.overloaded, lasted_ms, run.counted)

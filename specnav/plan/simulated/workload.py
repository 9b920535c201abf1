# SPDX-License-Identifier: Apache-2.0
"""The workload of a fleet: what the robots request, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from specnav.results.errors import EvaluationError

Arrivals = Literal["poisson", "periodic", "after"]
ARRIVALS: tuple[Arrivals, ...] = ("poisson", "periodic", "after")


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

# SPDX-License-Identifier: Apache-2.0
"""What robots ask of the fleet, and when."""

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
    """Decisions: a prompt with a picture goes up, an answer comes back. A robot has one in progress at a time; the next
    waits for it on the robot, and that counts.

    rate: decisions a second of a robot. arrivals: "poisson"; "periodic", each robot with a phase of its own; "after":
    the next begins an exponential pause of 1/rate seconds after the last one's end, at once where rate is infinite.
    prompts, answers: tokens, of which each decision draws one evenly. picture_bytes: go up with each prompt.
    picture_ms: what the verifier takes to prepare a picture, beside its forwards.
    """

    robots: int
    rate: float
    arrivals: Arrivals = "poisson"
    prompts: tuple[int, ...] = (900,)
    answers: tuple[int, ...] = (40,)
    picture_bytes: int = 30_000
    picture_ms: float = 0.0

    def __post_init__(self) -> None:
        """Raises EvaluationError for what no robot does."""
        if self.robots < 1:
            raise EvaluationError("a fleet has at least one robot")
        if not self.rate > 0:
            raise EvaluationError("a robot that decides nothing needs no verifier: give a rate above 0")
        if not self.prompts or min(self.prompts) < 1 or not self.answers or min(self.answers) < 1:
            raise EvaluationError("a prompt and an answer have at least one token")

    @property
    def answer_mean(self) -> float:
        """Tokens of an answer, on average."""
        return sum(self.answers) / len(self.answers)


def arrivals_named(name: str) -> Arrivals:
    """One of the kinds of arrivals. Raises EvaluationError."""
    for kind in ARRIVALS:
        if kind == name:
            return kind
    raise EvaluationError(f"arrivals {name!r} are unknown: choose {', '.join(ARRIVALS)}")


def arrivals_of(work: Workload, until_ms: float, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When decisions fall due before `until_ms`, in order, and whose they are; not for "after", while it is unknown.

    The same seed gives the same decisions, whatever method answers them.
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
    else:  # decisions of many independent robots are one stream of which each is any client's
        count = int(drawn.poisson(work.robots * work.rate * until_ms / 1e3))
        times = drawn.uniform(0.0, until_ms, count)
        robots = drawn.integers(0, work.robots, count)
    order = np.argsort(times, kind="stable")
    return times[order], robots[order]

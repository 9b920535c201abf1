# SPDX-License-Identifier: Apache-2.0
"""Worlds: forward times on both sides, the link, how good drafts are, and what changes in mid-answer.

Worlds are drawn from a seed. Nothing here is measured; the ranges cover the published operating points and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from specdec.link.shaping import LinkProfile
from specdec.row_ms import RowMs

Phase = tuple[int, float, float]
"""From this many tokens of all answers on: target forwards take this many times as long, and wait so long before,
ms.
"""


@dataclass(frozen=True)
class Fit:
    """How well the draft model knows the target. Tokens come in easy and hard stretches.

    easy: share of tokens in easy stretches; stretch: the mean length of stretches. sure_easy, sure_hard: mean
    probability that the draft model gives its likeliest token there. heat: its probabilities are those of the target at
    this temperature; above 1 the model is less sure than it could be, below 1 too sure. repeats: share of tokens in
    repetitions of earlier stretches, of 12 tokens on average; the draft model knows these no better than other tokens.
    """

    easy: float
    stretch: float
    sure_easy: float
    sure_hard: float
    heat: float
    repeats: float = 0.0


@dataclass(frozen=True)
class SimulatedWorld:
    """One edge and its cloud. Milliseconds.

    draft, verify, cloud_draft: forward times by number of rows; cloud_draft None: the cloud has no draft model. noise:
    relative noise of every forward. prompt: the time of a prompt, in forwards of one row. phases: the first begins at
    token 0. contention: 1 if both sides compute on one core, 0 if each has its own. told: whether both sides report
    what rows cost when they are idle. misjudged: factor by which forwards of several rows take longer than reported.
    hint_at: the fraction of a verification after which an exit gives a hint, 0: never; hint_right: how often the hint
    is right. answers: the lengths of the answers.
    """

    seed: int
    draft: RowMs
    verify: RowMs
    cloud_draft: RowMs | None
    noise: float
    prompt: float
    link: LinkProfile
    fit: Fit
    phases: tuple[Phase, ...]
    contention: float
    told: bool
    hint_at: float
    hint_right: float
    answers: tuple[int, ...]
    misjudged: float = 1.0

    @property
    def tokens(self) -> int:
        """The tokens of all answers together."""
        return sum(self.answers)

    def phase(self, token: int) -> Phase:
        """The phase in effect after this many tokens."""
        return [one for one in self.phases if one[0] <= token][-1]


ROWS = (1, 2, 4, 8, 16, 33, 65)


def forwards(one_ms: float, a_row: float) -> RowMs:
    """Forwards that take `one_ms` with one row, and `a_row` times that more for each further row."""
    return RowMs(tuple((rows, one_ms * (1 + a_row * (rows - 1))) for rows in ROWS))


def random_world(
    seed: int, most_answers: int = 4, repeats: float = 0.0, misjudged: float = 1.0
) -> SimulatedWorld:
    """Draw one world with at most this many answers. repeats: as in Fit. misjudged: as in SimulatedWorld; if above 1,
    the cost of rows is reported in every world.
    """
    draw = Random(seed)

    def between(low: float, high: float) -> float:
        """Log-uniform."""
        return math.exp(draw.uniform(math.log(low), math.log(high)))

    def sometimes(chance: float, value: float) -> float:
        return value if draw.random() < chance else 0.0

    verify_ms = between(3.0, 400.0)
    draft_ms = verify_ms * between(0.06, 0.6)
    verify_row, draft_row = sometimes(0.6, between(0.005, 0.15)), sometimes(0.6, between(0.005, 0.15))
    rtt_ms = sometimes(0.8, between(0.5, 300.0))
    lengths = [draw.randint(24, 96) for _ in range(draw.randint(1, most_answers))]
    while sum(lengths) < 64:
        lengths.append(draw.randint(24, 96))
    return SimulatedWorld(
        seed=seed,
        draft=forwards(draft_ms, draft_row),
        verify=forwards(verify_ms, verify_row),
        cloud_draft=forwards(draft_ms * between(0.2, 1.5), draft_row) if draw.random() < 0.4 else None,
        noise=draw.uniform(0.0, 0.15),
        prompt=draw.uniform(1.0, 4.0),
        link=LinkProfile(rtt_ms, rtt_ms * draw.uniform(0.0, 0.5)),
        fit=Fit(
            easy=draw.uniform(0.05, 0.95),
            stretch=between(1.5, 30.0),
            sure_easy=draw.uniform(0.85, 0.99),
            sure_hard=draw.uniform(0.15, 0.6),
            heat=draw.uniform(0.6, 1.5),
            repeats=repeats,
        ),
        phases=_phases(draw, sum(lengths), verify_ms),
        contention=sometimes(0.3, draw.uniform(0.3, 1.0)),
        told=draw.random() < 0.6 or misjudged > 1.0,
        hint_at=sometimes(0.4, draw.uniform(0.3, 0.8)),
        hint_right=draw.uniform(0.4, 0.95),
        answers=tuple(lengths),
        misjudged=misjudged,
    )


def _phases(draw: Random, tokens: int, verify_ms: float) -> tuple[Phase, ...]:
    """The phases: half of all worlds never change; in the others a queue comes or goes, or the target's times jump."""
    phases: list[Phase] = [(0, 1.0, draw.choice((0.0, 0.0, draw.uniform(0.0, 0.8) * verify_ms)))]
    if draw.random() < 0.5:
        for at in sorted(draw.sample(range(16, tokens), draw.randint(1, 3))):
            wait_ms = draw.choice((0.0, draw.uniform(0.0, 1.5) * verify_ms))
            phases.append((at, draw.choice((1.0, draw.uniform(0.4, 3.0))), wait_ms))
    return tuple(phases)

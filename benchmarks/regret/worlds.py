# SPDX-License-Identifier: Apache-2.0
"""Worlds: what forwards take on either side, the link, how good drafts are, and what changes in mid-answer.

Drawn from a seed. Nothing in here is measured; ranges are those of the published operating points and beyond.
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

    easy: share of tokens in easy ones; stretch: their mean length. sure_easy, sure_hard: mean probability that the
    draft model gives its likeliest token there. heat: its probabilities are those of the target at this temperature;
    above 1 the model is less sure than it might be, below 1 too sure. repeats: share of tokens in stretches that were
    said before, of 12 tokens on average; the draft model knows them as well as others.
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

    draft, verify, cloud_draft: forwards by their rows; cloud_draft None: no draft model there. noise: of every forward,
    as a share. prompt: times a forward of one row that a prompt takes. phases: the first from token 0 on. contention:
    1: both sides compute on one core, 0: each has its own. told: both sides tell what rows cost, when they are idle.
    misjudged: forwards of several rows take this many times as long as was told.
    hint_at: the part of a verification after which an exit gives a hint, 0: never; hint_right: how often it is right.
    answers: their lengths.
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
        """Of all answers."""
        return sum(self.answers)

    def phase(self, token: int) -> Phase:
        """What counts when this many tokens were said."""
        return [one for one in self.phases if one[0] <= token][-1]


ROWS = (1, 2, 4, 8, 16, 33, 65)


def forwards(one_ms: float, a_row: float) -> RowMs:
    """Forwards that take `one_ms` with one row and `a_row` of that more with each further one."""
    return RowMs(tuple((rows, one_ms * (1 + a_row * (rows - 1))) for rows in ROWS))


def random_world(
    seed: int, most_answers: int = 4, repeats: float = 0.0, misjudged: float = 1.0
) -> SimulatedWorld:
    """One world, with this many answers at most. repeats: as in Fit. misjudged: as in SimulatedWorld; above 1, the rows
    are told in every world.
    """
    draw = Random(seed)

    def between(low: float, high: float) -> float:
        """Evenly by magnitude."""
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
    """Half of all worlds stay as they are; in the others a queue comes or goes, or the target's times jump."""
    phases: list[Phase] = [(0, 1.0, draw.choice((0.0, 0.0, draw.uniform(0.0, 0.8) * verify_ms)))]
    if draw.random() < 0.5:
        for at in sorted(draw.sample(range(16, tokens), draw.randint(1, 3))):
            wait_ms = draw.choice((0.0, draw.uniform(0.0, 1.5) * verify_ms))
            phases.append((at, draw.choice((1.0, draw.uniform(0.4, 3.0))), wait_ms))
    return tuple(phases)

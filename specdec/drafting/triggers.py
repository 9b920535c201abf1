"""Confidence triggers: a draft leaves when it has become doubtful. One rule a class; the axis `length` names them.

Vocabulary
    chance: the draft's probability of one of its own tokens (q_n of PipeSD).
    chain chance: the product of the chances since the last verdict was asked for (C_n).
    fire: a verdict is asked for. The token that fires belongs to the draft.

A trigger only sees tokens in the order they were drawn, and a token that was drawn always leaves: sampled answers stay
exact, because no token is dropped for what it is. Whatever a trigger learns may depend on drafts that were refuted;
`ChainDrafter` therefore draws a position anew with a number of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul
from typing import Protocol

MOVING = "moving"
_MOVING_START = 0.92
_MOVING_FACTOR = 0.5
_MOST_R1 = 1.99
_LEAST_R1 = 1e-6


class Trigger(Protocol):
    """Decides after every token whether the draft leaves now."""

    def fires(self, chance: float, chain: float) -> bool:
        """Whether a verdict is asked for. chance: of the last token; chain: of all since the last verdict."""
        ...

    def judged(self, chances: Sequence[float], accepted: int) -> None:
        """A draft with these chances was judged."""
        ...


class Dual:
    """The chain as a whole is doubtful, or its last token is (PipeSD). token alone is HSL; 0 never fires."""

    def __init__(self, chain: float = 0.0, token: float = 0.0) -> None:
        self.chain, self.token = chain, token

    def fires(self, chance: float, chain: float) -> bool:
        """As Trigger.fires."""
        return chain <= self.chain or chance <= self.token

    def judged(self, chances: Sequence[float], accepted: int) -> None:
        """Nothing is learnt."""


class Moving(Dual):
    """A chain threshold that falls while drafts are accepted whole and rises with what is refuted (EdgeLLM).

    A draft of 4 tokens with a chain chance of 0.25, of which 2 are accepted, divides it by 0.25 ** (2 / 4) = 0.5.
    """

    def __init__(self) -> None:
        super().__init__(chain=_MOVING_START)

    def judged(self, chances: Sequence[float], accepted: int) -> None:
        """As Trigger.judged."""
        drafted, chain = len(chances), prod(chances)
        if accepted >= drafted:
            self.chain = max(_LEAST_R1, self.chain * _MOVING_FACTOR)
        elif chain > 0.0:
            self.chain = min(_MOST_R1, self.chain / chain ** ((drafted - accepted) / drafted))


def make_trigger(length: str) -> Trigger | None:
    """The trigger that a value of the axis `length` names; None for another policy.

    Raises ValueError for a threshold outside (0, 1].
    """
    kind, _, value = length.partition(":")
    if kind == "token":
        return Dual(token=_threshold(value, "token:R2", "token:0.7"))
    if kind == "sequence":
        return Moving() if value == MOVING else Dual(_threshold(value, "sequence:R1", "sequence:0.5"))
    if kind == "dual":
        chain, _, token = value.partition("/")
        return Dual(
            _threshold(chain, "dual:R1/R2", "dual:0.5/0.3"), _threshold(token, "dual:R1/R2", "dual:0.5/0.3")
        )
    return None


def fires_at(trigger: Trigger, chances: Sequence[float]) -> int | None:
    """How many of the tokens leave: up to and with the first that fires; None where none does."""
    for count, (chance, chain) in enumerate(zip(chances, accumulate(chances, mul), strict=True), start=1):
        if trigger.fires(chance, chain):
            return count
    return None


def _threshold(text: str, form: str, example: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1.0:
        raise ValueError(f"a threshold of {form} must be above 0 and at most 1, got {text!r}: try {example}")
    return value

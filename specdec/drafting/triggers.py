# SPDX-License-Identifier: Apache-2.0
"""Confidence triggers: a draft is sent once it is doubtful. One rule per class; the axis `length` names them.

Vocabulary
    chance: the draft model's probability of one of its own tokens (q_n of PipeSD).
    chain chance: the product of the chances since the last verdict was requested (C_n).
    fire: to request a verdict. The token that fires belongs to the draft.

A trigger sees tokens in the order they were drawn, and every drawn token is sent. Sampled answers stay exact because no
token is dropped for its value. A trigger's state may depend on refuted drafts, so `ChainDrafter` uses fresh random
numbers when it draws a position again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from operator import mul

from specdec.estimates.measured import RunningMean

MOVING, LEARNED = "moving", "learned"
_MOVING_START = 0.92
_MOVING_FACTOR = 0.5
_MOST_R1 = 1.99
_LEAST_R1 = 1e-6
_BINS = 20
_FORGET = 0.99
"""Decay per draft token of the bin."""
_AS_TOLD = 4.0
"""Prior: this many tokens per bin that were right as often as the draft model says."""
_START_R1, _START_R2 = 0.5, 0.3
_USUALLY_RIGHT, _LEAST_RIGHT = 0.7, 0.05


class Trigger:
    """Decides after every token whether the draft leaves now. This one fires if the chain as a whole, or its last
    token, is doubtful (PipeSD). `token` alone is HSL; 0 never fires.
    """

    def __init__(self, chain: float = 0.0, token: float = 0.0) -> None:
        self.chain, self.token = chain, token

    def fires(self, chance: float, chain: float) -> bool:
        """Whether to request a verdict. chance: of the last token. chain: product since the last verdict."""
        return chain <= self.chain or chance <= self.token

    def judged(self, chances: Sequence[float], accepted: int, price: float | None = None) -> None:
        """A draft with these chances was judged. price: average tokens gained in the time of a draft forward pass.

        This trigger learns nothing.
        """


class Moving(Trigger):
    """A chain threshold that falls when a draft is fully accepted and rises when tokens are rejected (EdgeLLM).

    A draft of 4 tokens with a chain chance of 0.25, of which 2 are accepted, divides it by 0.25 ** (2 / 4) = 0.5.
    """

    def __init__(self) -> None:
        super().__init__(chain=_MOVING_START)

    def judged(self, chances: Sequence[float], accepted: int, price: float | None = None) -> None:
        """As Trigger.judged."""
        drafted, chain = len(chances), prod(chances)
        if accepted >= drafted:
            self.chain = max(_LEAST_R1, self.chain * _MOVING_FACTOR)
        elif chain > 0.0:
            self.chain = min(_MOST_R1, self.chain / chain ** ((drafted - accepted) / drafted))


class AcceptanceByChance:
    """How often drafts are right, by bins of the draft model's chance for them.

    The prior is a calibrated draft model; a few drafts outweigh it.
    """

    def __init__(self) -> None:
        self._tried = [_AS_TOLD] * _BINS
        self._kept = [_AS_TOLD * (place + 0.5) / _BINS for place in range(_BINS)]

    def add(self, chance: float, kept: bool) -> None:
        """Count one token or chain with this chance. kept: whether it was right."""
        place = min(int(chance * _BINS), _BINS - 1)
        self._tried[place] = _FORGET * self._tried[place] + 1.0
        self._kept[place] = _FORGET * self._kept[place] + kept

    def threshold(self, least: float) -> float:
        """The chance up to which drafts are right no more often than `least`; 0 if all are right more often.

        With bins of width 1/20 and calibrated drafts, 0.5 gives 0.5.
        """
        worth = (place for place in range(_BINS) if self._kept[place] > least * self._tried[place])
        return next(worth, _BINS) / _BINS


class Learned(Trigger):
    """Thresholds below which one more forward pass gains fewer tokens than arrive in its time.

    The expected gain of the next token is the chance that everything before it is accepted, from a table learnt from
    verdicts, times the share of accepted tokens. There are two tables: tokens after accepted ones, by their own chance
    (R2), and whole chains, by the product of their chances (R1).
    """

    def __init__(self, by_chain: bool, by_token: bool) -> None:
        """Starts with the thresholds of `pipesd`, for those in use, until times are known."""
        super().__init__(_START_R1 if by_chain else 0.0, _START_R2 if by_token else 0.0)
        self._by_chain = AcceptanceByChance() if by_chain else None
        self._by_token = AcceptanceByChance() if by_token else None
        self._right = RunningMean(_USUALLY_RIGHT)

    def judged(self, chances: Sequence[float], accepted: int, price: float | None = None) -> None:
        """As Trigger.judged."""
        for place, (chance, chain) in enumerate(zip(chances, accumulate(chances, mul), strict=True)):
            kept = place < accepted
            if place <= accepted:  # later tokens followed a rejected one and cannot be compared
                self._right.add(kept)
                if self._by_token is not None:
                    self._by_token.add(chance, kept)
            if self._by_chain is not None:
                self._by_chain.add(chain, kept)
        if price is not None:
            least = price / max(self._right.value, _LEAST_RIGHT)
            self.chain = 0.0 if self._by_chain is None else self._by_chain.threshold(least)
            self.token = 0.0 if self._by_token is None else self._by_token.threshold(least)


def make_trigger(length: str) -> Trigger | None:
    """The trigger that a value of the axis `length` names; None for another policy.

    Raises ValueError for a threshold outside (0, 1].
    """
    kind, _, value = length.partition(":")
    if value == LEARNED and kind in ("token", "sequence", "dual"):
        return Learned(by_chain=kind != "token", by_token=kind != "sequence")
    if kind == "token":
        return Trigger(token=_threshold(value, "token:R2", "token:0.7"))
    if kind == "sequence":
        return Moving() if value == MOVING else Trigger(_threshold(value, "sequence:R1", "sequence:0.5"))
    if kind == "dual":
        chain, _, token = value.partition("/")
        return Trigger(
            _threshold(chain, "dual:R1/R2", "dual:0.5/0.3"), _threshold(token, "dual:R1/R2", "dual:0.5/0.3")
        )
    return None


def fires_at(trigger: Trigger, chances: Sequence[float]) -> int | None:
    """How many tokens to send: up to and including the first that fires; None if none does."""
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

# SPDX-License-Identifier: Apache-2.0
"""The acceptance that is asked for, as it is written in flags and files: `tau:2.92@4+1`, `alpha:0.8`.

tau: tokens gained a round by `sd`, the target's own included, so at most γ + 1. `@N` says how many a round can bring at
most, as papers print tau: `tau:2.92@5` is 2.92 of at most 5, γ = 4; `@4+1` says the same and cannot be misread. Without
it γ is the run's. alpha: the chance that a draft token is accepted after a right prefix: at temperature 0 the share of
the target's tokens that the draft would have picked, above it the mean of Σ min(p, q).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from specnav.results.errors import EvaluationError

Kind = Literal["tau", "alpha"]
FORM = "give tau:T@N (T tokens a round of at most N = γ + 1, like tau:2.92@5), or alpha:A (like alpha:0.8)"
MOST_GAMMA = 32
_NUMBER = r"\d+(?:\.\d*)?|\.\d+"
_TAU = re.compile(rf"tau:({_NUMBER})(?:@(\d+)(\+1)?)?")
_ALPHA = re.compile(rf"alpha:({_NUMBER})")
TOLERANCES: dict[Kind, float] = {"tau": 0.05, "alpha": 0.01}


@dataclass(frozen=True)
class WantedAcceptance:
    """kind, value: as asked. gamma: draft tokens a round that a tau is meant for; of an alpha 0."""

    kind: Kind
    value: float
    gamma: int = 0

    @property
    def tolerance(self) -> float:
        """How far what is reached may be off."""
        return TOLERANCES[self.kind]

    @property
    def words(self) -> str:
        """For a reader: "τ 2.92 of at most 5 (sd, γ = 4)"."""
        if self.kind == "alpha":
            return f"α {self.value:g} a token"
        return f"τ {self.value:g} of at most {self.gamma + 1} (sd, γ = {self.gamma})"

    def __str__(self) -> str:
        return f"alpha:{self.value:g}" if self.kind == "alpha" else f"tau:{self.value:g}@{self.gamma}+1"


def read_acceptance(text: str, gamma: int) -> WantedAcceptance:
    """What a text asks for; gamma: of the run. str() of it reads back as the same, whatever the run's gamma is.

    Raises EvaluationError for another form, a value that cannot be, and an `@N` that may mean two things.
    """
    if found := _ALPHA.fullmatch(text.strip()):
        alpha = float(found[1])
        if not 0.0 <= alpha <= 1.0:
            raise EvaluationError(f"acceptance {text}: alpha is a probability, 0 to 1")
        return WantedAcceptance("alpha", alpha)
    found = _TAU.fullmatch(text.strip())
    if found is None:
        raise EvaluationError(f"acceptance {text!r} is none; {FORM}")
    own = gamma if found[2] is None else int(found[2]) - (0 if found[3] else 1)
    if found[2] is not None and not found[3] and int(found[2]) == gamma:
        raise EvaluationError(
            f"acceptance {text} is ambiguous with --gamma {gamma}: write tau:{found[1]}@{gamma}+1 for the run's own "
            f"γ = {gamma}, or tau:{found[1]}@{gamma - 1}+1 for at most {gamma} tokens a round, that is γ = {gamma - 1}"
        )
    if not 1 <= own <= MOST_GAMMA:
        raise EvaluationError(f"acceptance {text}: a draft has 1 to {MOST_GAMMA} tokens, so N is 2 to {MOST_GAMMA + 1}")
    tau = float(found[1])
    if not 1.0 <= tau <= own + 1:
        raise EvaluationError(
            f"acceptance {text}: a round of {own} draft tokens brings 1 to {own + 1} tokens, {tau:g} is none of that"
        )
    return WantedAcceptance("tau", tau, own)

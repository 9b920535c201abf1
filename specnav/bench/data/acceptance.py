# SPDX-License-Identifier: Apache-2.0
"""Parses a requested acceptance, as written in flags and files: `tau:2.92@4+1`, `alpha:0.8`.

tau: tokens that `sd` gains per round. It includes the target's own token, so it is at most γ + 1. `@N` gives this
maximum, as papers print tau: `tau:2.92@5` is 2.92 of at most 5, so γ = 4. `@4+1` means the same and cannot be misread.
Without `@N`, γ is the run's.
alpha: the probability that a draft token after a correct prefix is accepted. At temperature 0 it is the share of the
target's tokens that the draft would have picked; above 0 it is the mean of Σ min(p, q).
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
    """A requested acceptance. gamma: the draft tokens per round to which a tau refers; 0 for an alpha."""

    kind: Kind
    value: float
    gamma: int = 0

    @property
    def tolerance(self) -> float:
        """Largest allowed difference between the requested and the reached acceptance."""
        return TOLERANCES[self.kind]

    @property
    def words(self) -> str:
        """Text for reports: "τ 2.92 of at most 5 (sd, γ = 4)"."""
        if self.kind == "alpha":
            return f"α {self.value:g} a token"
        return f"τ {self.value:g} of at most {self.gamma + 1} (sd, γ = {self.gamma})"

    def __str__(self) -> str:
        return f"alpha:{self.value:g}" if self.kind == "alpha" else f"tau:{self.value:g}@{self.gamma}+1"


def read_acceptance(text: str, gamma: int) -> WantedAcceptance:
    """Parse a requested acceptance. Its str() parses back to an equal value for any gamma.

    Args:
        text: `tau:T`, `tau:T@N`, `tau:T@G+1` or `alpha:A`.
        gamma: the run's draft tokens per round, used where `text` names none.

    Raises:
        EvaluationError: for another form, an impossible value, or an ambiguous `@N`.
    """
    if found := _ALPHA.fullmatch(text.strip()):
        alpha = float(found[1])
        if not 0.0 <= alpha <= 1.0:
            raise EvaluationError(f"acceptance {text}: alpha is a probability, 0 to 1")
        return WantedAcceptance("alpha", alpha)
    found = _TAU.fullmatch(text.strip())
    if found is None:
        raise EvaluationError(f"acceptance {text!r} is not understood; {FORM}")
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
            f"acceptance {text}: a round of {own} draft tokens gains 1 to {own + 1} tokens, so tau cannot be {tau:g}"
        )
    return WantedAcceptance("tau", tau, own)

# SPDX-License-Identifier: Apache-2.0
"""The contestants by name: which exist, which can be compared with `ar` token by token, and which are lossy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec.methods import METHODS, Method, get_method
from specdec.sampling.recoveries import Recovery
from specnav.results.errors import EvaluationError

ORACLES = {
    "hf-generate": "transformers' generate: the target alone, one process, no link",
    "hf-assisted": "transformers' assisted generation: draft and target in one process, no link",
}


def check_names(names: Sequence[str]) -> None:
    """Raise EvaluationError for no name, a duplicate or an unknown contestant; the message lists the known ones."""
    if not names:
        raise EvaluationError(f"no method given; choose from {', '.join([*METHODS, *ORACLES])}")
    for name in names:
        if names.count(name) > 1:
            raise EvaluationError(f"method {name} is given twice; give each once")
        if name.startswith("hf-") and name not in ORACLES:
            raise EvaluationError(f"oracle {name} is unknown; there are {', '.join(ORACLES)}")
        if name not in ORACLES:
            get_method(name)


def comparable_with_ar(names: Sequence[str], temperature: float) -> frozenset[str]:
    """Contestants whose ids must equal those of `ar`: greedy, all; sampled, those that share its random numbers."""
    if temperature == 0:
        return frozenset(names)
    return frozenset(
        name
        for name in names
        if name not in ORACLES and get_method(name).recovery_at(temperature) is Recovery.NOISE
    )


def is_lossy(name: str) -> bool:
    """Whether a contestant is a method that, as published, changes the distribution of sampled answers."""
    return name not in ORACLES and get_method(name).lossy


def same_at(name: str, temperature: float) -> str:
    """The first method that is equivalent to `name` at a temperature.

    At temperature 0 it does not matter which side resamples. Above 0, this is `name` itself.
    """
    if name in ORACLES or temperature > 0:
        return name
    axes = _greedy_axes(name)
    return next(other for other in (*METHODS, name) if _greedy_axes(other) == axes)


def unlike_methods(temperature: float) -> tuple[str, ...]:
    """The methods that differ at a temperature; of equivalent ones, only the first."""
    return tuple(name for name in METHODS if same_at(name, temperature) == name)


def _greedy_axes(name: str) -> Method:
    return replace(get_method(name), name="", summary="", recovery=Recovery.NOISE, recovery_size=0)

# SPDX-License-Identifier: Apache-2.0
"""Sampling: from logits to tokens, as pure functions over tensors.

Logits processors, greedy choice, rejection sampling (accept, recover, bonus), and shared noise, which lets both sides
pick the same token without sending probabilities. Nothing here holds random state. Names, and torch with them, are
imported at first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.sampling.choice import Chooser
    from specdec.sampling.noise import gumbel_noise
    from specdec.sampling.processors import process_logits
    from specdec.sampling.rejection import recovery_distribution

__all__ = ["Chooser", "gumbel_noise", "process_logits", "recovery_distribution"]
_WITH_TORCH = {
    "Chooser": "choice",
    "gumbel_noise": "noise",
    "process_logits": "processors",
    "recovery_distribution": "rejection",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WITH_TORCH[name]}"), name)

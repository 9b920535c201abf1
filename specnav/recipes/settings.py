# SPDX-License-Identifier: Apache-2.0
"""Settings that all trainings have in common."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.options import GenerationOptions
from specdec.settings import same_as, setting


@dataclass(frozen=True)
class TrainingSettings:
    """Common settings; each recipe's settings refer to them by name (`same_as`)."""

    minutes: float = setting(
        0.0, "Shorten training to about this many minutes; 0: no limit.", 0, 100_000, metavar="N"
    )
    seed: int = same_as(GenerationOptions, "seed")
    workers: int = setting(1, "Processes, one CPU thread each.", 1, 64, metavar="N")
    tokens: int = setting(0, "Tokens of the vocabulary that the loss covers in a batch; 0: all.", 0, metavar="N")

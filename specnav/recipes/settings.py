# SPDX-License-Identifier: Apache-2.0
"""Settings that every training has."""

from __future__ import annotations

from dataclasses import dataclass

from specdec.options import GenerationOptions
from specdec.settings import same_as, setting


@dataclass(frozen=True)
class TrainingSettings:
    """Each recipe's settings refer to these by name (`same_as`), or are made from them."""

    minutes: float = setting(
        0.0, "Shorten training to about this many minutes; 0: no.", 0, 100_000, metavar="N"
    )
    seed: int = same_as(GenerationOptions, "seed")
    workers: int = setting(1, "Processes, one CPU thread each.", 1, 64, metavar="N")

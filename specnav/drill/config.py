# SPDX-License-Identifier: Apache-2.0
"""Settings of a drill run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.options import GenerationOptions
from specdec.settings import check_settings, same_as, setting, words
from specnav.errors import HarnessError
from specnav.supervise.children import Parameter

# Slow, so that a motion lasts longer than the watchdogs; all other settings are those of config/robot.yaml.
SPEEDS: dict[str, Parameter] = {"max_linear": 0.25, "max_angular": 0.35}


@dataclass(frozen=True)
class DrillConfig:
    """Settings of a run. cancels, cycles: turns of the leak checks."""

    faults: tuple[str, ...] = setting(
        (), "Faults by name or beginning of the name; see --list.", metavar="A,B,...", shown="all", read=words
    )
    runs: int = setting(1, "How many times to inject each fault.", 1, 1000, metavar="N")
    seed: int = same_as(GenerationOptions, "seed")
    out: Path | None = setting(None, "Folder of the report.", metavar="DIR", shown="runs/drill-<time>")
    cancels: int = setting(
        0,
        "Leak check: cancel this many instructions, at least 20, and watch memory; 0: no check.",
        0,
        10_000,
        metavar="N",
    )
    cycles: int = setting(
        0,
        "Leak check: deactivate and activate vlm_nav_node this many times, at least 20; 0: no check.",
        0,
        10_000,
        metavar="N",
    )

    def __post_init__(self) -> None:
        check_settings(self, HarnessError)
        for name, turns in (("cancels", self.cancels), ("cycles", self.cycles)):
            if turns and not 20 <= turns <= 10_000:
                raise HarnessError(f"{name} is {turns}; give 0 (no check) or 20 to 10000 turns")

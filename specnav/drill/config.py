"""What a drill is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specnav.errors import HarnessError
from specnav.supervise.children import Parameter

# Slow, so that a motion lasts longer than the watchdogs; everything else is as in config/robot.yaml.
SPEEDS: dict[str, Parameter] = {"max_linear": 0.25, "max_angular": 0.35}


@dataclass(frozen=True)
class DrillConfig:
    """Settings of a run. faults: names or their beginnings, () means all; cancels, cycles: turns of the leak checks."""

    faults: tuple[str, ...] = ()
    runs: int = 1
    seed: int = 0
    out: Path | None = None
    cancels: int = 0
    cycles: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.runs <= 1000:
            raise HarnessError(f"runs is {self.runs}; give a number from 1 to 1000")
        for name, turns in (("cancels", self.cancels), ("cycles", self.cycles)):
            if turns and not 20 <= turns <= 10_000:
                raise HarnessError(f"{name} is {turns}; give 0 (no check) or 20 to 10000 turns")

"""What a demo run is asked to do: one frozen record, checked when it is made.

Each field carries its help text and its limits in the dataclass metadata, for the command line and the documentation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from specnav.demo.errors import DemoError
from specnav.paths import CONFIG, DEFAULT_DRAFT, DEFAULT_TARGET

METHODS = ("fsd", "auto", "sd", "specedge", "picospec", "ar")
EXPLORATIONS = ("auto", "frontier_search", "damped_search", "none")
SPLITS = ("heldout", "train")


def _option(default: Any, help_text: str, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"help": help_text, "low": low, "high": high})


def _choice(default: str, help_text: str, choices: tuple[str, ...]) -> Any:
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class DemoConfig:
    """Settings of a demo run; a wrong value is refused with the allowed range (DemoError)."""

    episodes: int = _option(3, "Instructions to carry out.", 1, 10_000)
    seed: int = _option(0, "Seed of the first episode; the next ones count up.", 0, 2**31 - 1)
    method: str = _choice(
        "fsd", "How answers are decoded: ar is the cloud alone, the others draft on the robot.", METHODS
    )
    out: Path | None = field(
        default=None, metadata={"help": "Folder of the run (default: runs/demo-<time>)."}
    )
    split: str = _choice("heldout", "Rooms: heldout (never trained on) or train.", SPLITS)
    absent_share: float = _option(0.0, "Share of episodes whose target is not in the room.", 0, 1)
    max_decisions: int = _option(50, "Give up an episode after so many decisions.", 1, 1000)
    episode_timeout_s: float = _option(150.0, "Give up an episode after so many seconds.", 1, 86_400)
    max_new_tokens: int = _option(96, "Longest answer, tokens.", 8, 1024)
    gamma: int = _option(4, "Draft tokens a round.", 1, 32)
    temperature: float = _option(
        0.0, "0 is greedy; above it the target's distribution, by shared noise.", 0, 2
    )
    exploration: str = _choice("auto", "Exploration policy; none: the model alone.", EXPLORATIONS)
    rtt_ms: float = _option(0.0, "Emulated round-trip time of the link, ms.", 0, 60_000)
    jitter_ms: float = _option(0.0, "Emulated jitter of the link, ms.", 0, 60_000)
    bandwidth_mbps: float = _option(0.0, "Emulated bandwidth each way, Mbit/s; 0: no limit.", 0, 1e6)
    loss: float = _option(0.0, "Emulated share of messages that are lost once and sent again.", 0, 0.9)
    verify_ms: float = _option(
        0.0,
        "Pace: each forward of the target takes at least so long, ms (a larger model's stand-in).",
        0,
        60_000,
    )
    target_model: str = field(default=str(DEFAULT_TARGET), metadata={"help": "Target: HF folder or hub id."})
    draft_model: str = field(
        default=str(DEFAULT_DRAFT), metadata={"help": "Draft: HF folder or hub id, or a GGUF file."}
    )
    gguf: str = field(default="", metadata={"help": "Of a GGUF draft: NAME=VALUE,... (see specnav generate)."})
    headless: bool = field(default=False, metadata={"help": "Plain log lines instead of the live view."})
    latency_study: bool = field(
        default=False, metadata={"help": "Afterwards compare ar, sd and fsd at RTT 0, 40 and 120 ms."}
    )
    study_decisions: int = _option(10, "Decisions for each cell of the latency study.", 2, 1000)
    compare_decisions: int = _option(
        40, "At most so many answers are decoded again with the target alone; 0: none.", 0, 100_000
    )
    robot_config: Path = field(
        default=CONFIG / "robot.yaml", metadata={"help": "Parameters of the robot's nodes."}
    )
    sim_config: Path = field(default=CONFIG / "sim.yaml", metadata={"help": "Parameters of the simulator."})
    cloud_config: Path = field(default=CONFIG / "cloud.yaml", metadata={"help": "Settings of the verifier."})
    start_timeout_s: float = _option(90.0, "How long a process may take until it is ready.", 1, 3600)

    def __post_init__(self) -> None:
        for entry in fields(self):
            check_field(entry.name, getattr(self, entry.name), entry.metadata)

    @property
    def link_is_emulated(self) -> bool:
        """Whether the link emulator stands between edge and cloud."""
        return any((self.rtt_ms, self.jitter_ms, self.bandwidth_mbps, self.loss))

    def is_absent(self, index: int) -> bool:
        """Whether the target of episode `index` is missing: spread evenly over the run."""
        return math.floor((index + 1) * self.absent_share) > math.floor(index * self.absent_share)


def check_field(name: str, value: object, metadata: Any) -> None:
    """Raise DemoError when a value is outside its declared limits or choices."""
    choices = metadata.get("choices")
    if choices and value not in choices:
        raise DemoError(f"{name} is {value!r}; choose one of {', '.join(choices)}")
    low, high = metadata.get("low"), metadata.get("high")
    if low is None or high is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise DemoError(f"{name} is {value!r}; give a number from {low:g} to {high:g}")

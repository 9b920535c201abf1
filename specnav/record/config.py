# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav record`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.options import GenerationOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting, words
from specnav.edge_settings import EdgeSettings
from specnav.errors import UsageError
from specnav.paths import DEFAULT_TARGET


@dataclass(frozen=True)
class RecordConfig:
    """The file to write and its content."""

    out: Path = setting(REQUIRED, "The file to write.", metavar="FILE.mcap")
    topics: tuple[str, ...] = setting(
        (),
        "Topics to record.",
        metavar="[TOPIC]…",
        positional=True,
        shown="cameras, odometry, velocities, diagnostics, the operator's and the nodes' own",
    )
    duration_s: float | None = setting(
        None, "Stop after this many seconds.", 0.1, flags=("--duration",), shown="on Ctrl-C"
    )
    force: bool = setting(False, "Overwrite an existing file.")
    sim: bool = setting(False, "Record simulated episodes instead, without ROS; also writes labels.")
    episodes: int = setting(2, "With --sim: instructions to carry out.", 1, 1000)
    seed: int = same_as(
        GenerationOptions, "seed", high=2**31 - 1, help="With --sim: seed of the first episode."
    )
    split: str = setting("heldout", "With --sim: heldout or train.")
    about: tuple[str, ...] = setting(
        (),
        "With --sim: only targets of these kinds and colours, e.g. lamp,pink.",
        metavar="WORD,…",
        read=words,
    )
    target_model: str = same_as(
        EdgeSettings,
        "target_model",
        default=str(DEFAULT_TARGET),
        shown="the shipped one",
        help="With --sim: target, a Hugging Face folder or hub id.",
    )

    def __post_init__(self) -> None:
        check_settings(self, UsageError)
        if self.sim and self.topics:
            raise UsageError("--sim records its own topics; leave the names out")
        if self.sim and self.duration_s is not None:
            raise UsageError("--sim ends with its --episodes; leave --duration out")

    @property
    def labels(self) -> Path:
        """The file of the oracle's actions."""
        return self.out.with_suffix(".labels.csv")

# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav play`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import REQUIRED, check_settings, setting
from specnav.errors import UsageError


@dataclass(frozen=True)
class PlayConfig:
    """The bag, the topics to play, and how."""

    bag: Path = setting(
        REQUIRED, "A rosbag2 folder, or an .mcap or .db3 file.", metavar="BAG", positional=True
    )
    topics: tuple[str, ...] = setting(
        (),
        "Topics to play.",
        metavar="[TOPIC]…",
        positional=True,
        shown="cameras, sensors, odometry, instruction",
    )
    remaps: tuple[str, ...] = setting(
        (), "Publish a topic under another name.", metavar="/OLD:=/NEW", flags=("--remap",)
    )
    rate: float = setting(1.0, "Playback speed, as a multiple of the bag's own.", 0.01, 100.0, metavar="X")
    loop: bool = setting(False, "Repeat until Ctrl-C.")
    clock: bool = setting(False, "Publish /clock with the bag's time, for nodes with use_sim_time.")
    wait_s: float = setting(
        5.0, "Longest wait for a subscriber on each topic.", 0.0, unit="s", flags=("--wait",)
    )

    def __post_init__(self) -> None:
        check_settings(self, UsageError)

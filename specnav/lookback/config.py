# SPDX-License-Identifier: Apache-2.0
"""Settings of `specnav console --bag`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import PAIR_THAT_SEES, EdgeSettings
from specnav.errors import UsageError


@dataclass(frozen=True)
class LookBack:
    """Settings of `specnav console --bag`, except for the models."""

    bag: Path = setting(
        REQUIRED, "A .mcap or .db3 file, a bag's folder, a black-box file, or a run's folder.", metavar="BAG"
    )
    labels: Path | None = setting(
        None, "File for labels.", metavar="FILE.csv", shown="next to the bag"
    )
    port: int = setting(8766, "Port on this machine; 0: a free one.", 0, 65_535)
    again: str | None = setting(
        None, "Decide again with this method; the page can do this, too.", metavar="METHOD"
    )
    clip: Path | None = setting(
        None, "Write a clip, .mp4 or .gif, instead of opening the page.", metavar="FILE"
    )
    begin: float = setting(0.0, "With --clip: its start.", 0, unit="s", flags=("--from",))
    end: float = setting(1e9, "With --clip: its end.", 0, unit="s", flags=("--to",), shown="the end")


@dataclass(frozen=True)
class Deciders:
    """The models that decide, as in the options of `specnav replay`; "" is replay's default."""

    connect: str = same_as(EdgeSettings, "connect", default="", shown="start one")
    key: str = same_as(EdgeSettings, "key", default="")
    pair: str = same_as(EdgeSettings, "pair", default="", help=PAIR_THAT_SEES)
    target_model: str = same_as(EdgeSettings, "target_model", default="", shown="the shipped one")
    draft_model: str = same_as(EdgeSettings, "draft_model", default="", shown="the shipped one")
    image_topic: str = setting("", "The camera to use, if there are several.", metavar="TOPIC")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)
        if self.key and not self.connect:
            raise UsageError("--key is for a verifier that runs elsewhere: name it with --connect")
        for name in ("key", "target_model", "draft_model"):  # the replay runs in another folder; a hub id is kept
            if (given := getattr(self, name)) and Path(given).exists():
                object.__setattr__(self, name, str(Path(given).resolve()))

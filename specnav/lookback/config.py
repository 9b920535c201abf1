# SPDX-License-Identifier: Apache-2.0
"""What `specnav console --bag` is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.edge_settings import PAIR_THAT_SEES, EdgeSettings
from specnav.errors import UsageError


@dataclass(frozen=True)
class LookBack:
    """What `specnav console` is told, beside who decides."""

    bag: Path = setting(
        REQUIRED, "A .mcap or .db3 file, a bag's folder, a black-box file, or a run's folder.", metavar="BAG"
    )
    labels: Path | None = setting(
        None, "Where labels are kept.", metavar="FILE.csv", shown="beside the bag"
    )
    port: int = setting(8766, "Port on this machine; 0: a free one.", 0, 65_535)
    again: str | None = setting(
        None, "Decide again with this method, which the page can do, too.", metavar="METHOD"
    )
    clip: Path | None = setting(
        None, "Write a clip, .mp4 or .gif, instead of opening the page.", metavar="FILE"
    )
    begin: float = setting(0.0, "With --clip: where it begins.", 0, unit="s", flags=("--from",))
    end: float = setting(1e9, "With --clip: where it ends.", 0, unit="s", flags=("--to",), shown="the end")


@dataclass(frozen=True)
class Deciders:
    """Who decides: as the options of `specnav replay`; "" is its default."""

    connect: str = same_as(EdgeSettings, "connect", default="", shown="start one")
    key: str = same_as(EdgeSettings, "key", default="")
    pair: str = same_as(EdgeSettings, "pair", default="", help=PAIR_THAT_SEES)
    target_model: str = same_as(EdgeSettings, "target_model", default="", shown="the shipped one")
    draft_model: str = same_as(EdgeSettings, "draft_model", default="", shown="the shipped one")
    image_topic: str = setting("", "Which camera, where there are several.", metavar="TOPIC")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)
        if self.key and not self.connect:
            raise UsageError("--key is for a verifier that runs elsewhere: name it with --connect")
        for name in ("key", "target_model", "draft_model"):  # the replay runs in another folder; a hub's name stays
            if (given := getattr(self, name)) and Path(given).exists():
                object.__setattr__(self, name, str(Path(given).resolve()))

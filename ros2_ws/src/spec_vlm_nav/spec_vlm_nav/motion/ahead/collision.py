# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Whether something is too near ahead: what the sensor showed last, and what follows from it.

The readers of scans, depth images and clouds are beside this; each returns a Clearance. A sensor
that is silent, or blind, does not show a clear way.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

SOURCES = ("none", "scan", "depth", "cloud")


@dataclass(frozen=True)
class Clearance:
    """
    What a message shows.

    The distance of the nearest thing ahead (infinite: none), or why it shows nothing; `behind_m`
    is the same straight back, 0 where the sensor does not look there. `unseen`: which part of the
    way ahead it does not see, "" where it sees all of it.
    """

    nearest_m: float = math.inf
    blind: str = ""
    behind_m: float = 0.0
    unseen: str = ""


@dataclass(frozen=True)
class AheadConfig:
    """When what is ahead ends a forward motion; `collision_watched`: there is a sensor."""

    collision_watched: bool = False
    collision_distance_m: float = 0.35
    collision_timeout_s: float = 0.5


class AheadWatch:
    """What the sensor saw last, and when (receive time, s)."""

    def __init__(self) -> None:
        self.clearance: Clearance | None = None
        self.heard_at = -math.inf

    def hear(self, clearance: Clearance, now: float) -> None:
        """Take note of a message."""
        self.clearance, self.heard_at = clearance, now

    def blind(self, now: float, config: AheadConfig) -> str:
        """Return why it is not known what is ahead, or ""."""
        if not config.collision_watched:
            return ""
        if self.clearance is None:
            return "nothing heard yet of the sensor that looks ahead"
        if (age := now - self.heard_at) > config.collision_timeout_s:
            return f"the sensor that looks ahead is silent for {age:.2f} s"
        return self.clearance.blind

    def fault(self, now: float, config: AheadConfig) -> str:
        """Return what is too near for going forward, or ""; whether it sees at all: `blind`."""
        if not config.collision_watched:
            return ""
        if self.blind(now, config) or self.clearance is None:
            return ""
        if self.clearance.nearest_m < config.collision_distance_m:
            return (
                f"something is {self.clearance.nearest_m:.2f} m ahead, "
                f"allowed is {config.collision_distance_m:g} m"
            )
        return self.clearance.unseen

    def free_behind_m(self, now: float, config: AheadConfig) -> float:
        """Return how far straight back the sensor sees free floor, its distance kept; else 0."""
        if not config.collision_watched or self.clearance is None or self.blind(now, config):
            return 0.0
        return max(0.0, self.clearance.behind_m - config.collision_distance_m)

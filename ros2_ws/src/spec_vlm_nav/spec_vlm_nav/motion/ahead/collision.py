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
Decides from the latest collision sensor message whether an obstacle ahead is too near.

The modules `ranges` and `cloud` read the messages and return a Clearance. A silent or blind sensor
never counts as a clear way.
"""

from __future__ import annotations

from dataclasses import dataclass
import math

SOURCES = ("none", "scan", "depth", "cloud")


@dataclass(frozen=True)
class Clearance:
    """
    Obstacles in one sensor message.

    nearest_m: distance of the nearest obstacle ahead; infinite: none.
    blind: why the message shows nothing, or "".
    behind_m: free distance straight back; 0 if the sensor does not look there.
    unseen: the part of the way ahead that the sensor does not see; "": it sees all of it.
    """

    nearest_m: float = math.inf
    blind: str = ""
    behind_m: float = 0.0
    unseen: str = ""


@dataclass(frozen=True)
class AheadConfig:
    """Limits for obstacles ahead; `collision_watched`: a collision sensor is configured."""

    collision_watched: bool = False
    collision_distance_m: float = 0.35
    collision_timeout_s: float = 0.5


class AheadWatch:
    """The latest clearance and its receive time, s."""

    def __init__(self) -> None:
        self.clearance: Clearance | None = None
        self.heard_at = -math.inf

    def hear(self, clearance: Clearance, now: float) -> None:
        """Record a message."""
        self.clearance, self.heard_at = clearance, now

    def blind(self, now: float, config: AheadConfig) -> str:
        """Return why the sensor does not show what is ahead, or ""."""
        if not config.collision_watched:
            return ""
        if self.clearance is None:
            return "no message yet from the collision sensor"
        if (age := now - self.heard_at) > config.collision_timeout_s:
            return f"the collision sensor has been silent for {age:.2f} s"
        return self.clearance.blind

    def fault(self, now: float, config: AheadConfig) -> str:
        """Return why the way ahead is not clear, or ""; a blind sensor is reported by `blind`."""
        if not config.collision_watched:
            return ""
        if self.blind(now, config) or self.clearance is None:
            return ""
        if self.clearance.nearest_m < config.collision_distance_m:
            return (
                f"an obstacle is {self.clearance.nearest_m:.2f} m ahead, "
                f"the limit is {config.collision_distance_m:g} m"
            )
        return self.clearance.unseen

    def free_behind_m(self, now: float, config: AheadConfig) -> float:
        """Return the free distance straight back, less collision_distance_m; 0 if not seen."""
        if not config.collision_watched or self.clearance is None or self.blind(now, config):
            return 0.0
        return max(0.0, self.clearance.behind_m - config.collision_distance_m)

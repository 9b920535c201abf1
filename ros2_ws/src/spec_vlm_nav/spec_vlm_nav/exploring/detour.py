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
Detours around an obstacle between the robot and a visible target.

A model without memory can oscillate in front of a table for ever: from one heading the way seems to
be on the left, from the other on the right. So after a few decisions on one spot the robot leaves
sideways, by a heading that was found clear, else by one not looked at yet. It makes two strides
before it follows the target again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.search_map import SearchMap

PATIENCE = 4  # decisions on one spot with the target in sight and the way blocked
MORE_PATIENCE = 6  # the same with the way clear
SPOT = 0.2  # metres
STRIDES = 2
STRIDE = 0.7  # metres
WAYS = 24  # headings that are compared
ASIDE = math.radians(75)  # best angle between the way out and the target
BACK = 0.4  # least worth of a way straight back, relative to the best
OUT_OF_VIEW = math.radians(50)  # closer to the target, the model judges the target's way instead
SAYS_CLEAR, SAYS_BLOCKED = math.radians(9), math.radians(22)  # how far a judgement holds sideways
SPOTS = 8  # spots remembered


@dataclass(frozen=True)
class Detour:
    """
    Memory of detours.

    spot: where the robot stands and sees the target. seen: decisions there. strides: still to be
    made. target: where the target was seen, metres. side: +1: the last detour went to its left.
    left: spots that were left without success. tried: headings without a way.
    """

    spot: tuple[float, float] | None = None
    seen: int = 0
    strides: int = 0
    target: tuple[float, float] | None = None
    side: int = 0
    left: tuple[tuple[float, float], ...] = ()
    tried: tuple[float, ...] = ()

    def sees(self, place: Pose, bearing: float, distance: float, clear: bool | None) -> Detour:
        """Return the memory after a decision with the target in sight."""
        if self.strides:  # during a detour another object may be seen
            return self
        x = place.x + distance * math.cos(place.yaw + bearing)
        y = place.y + distance * math.sin(place.yaw + bearing)
        here = (place.x, place.y)
        stays = self.spot is not None and math.dist(self.spot, here) < SPOT
        seen = self.seen + 1 if stays else 1
        spot = self.spot if stays else here
        if seen > (MORE_PATIENCE if clear else PATIENCE):
            left = (*self.left, here)[-SPOTS:]
            begun = replace(self, spot=None, seen=0, strides=STRIDES, target=(x, y))
            return replace(begun, left=left, tried=())
        return replace(self, spot=spot, seen=seen, target=(x, y))

    def strides_on(self, place: Pose) -> Detour:
        """Return the memory after a stride straight ahead from here."""
        if self.target is None:
            return replace(self, strides=self.strides - 1)
        towards = math.atan2(self.target[1] - place.y, self.target[0] - place.x)
        side = 1 if wrap(place.yaw - towards) > 0 else -1
        return replace(self, strides=self.strides - 1, side=side)

    def way_out(self, known: SearchMap, place: Pose) -> float | None:
        """Return the best heading for leaving this place, or None."""
        if self.target is None:
            return None
        towards = math.atan2(self.target[1] - place.y, self.target[0] - place.x)
        said = known.ways_out(place)
        best, best_way = 0.0, None
        for k in range(WAYS):
            way = wrap(place.yaw + k * 2 * math.pi / WAYS)
            worth = self._worth(known, place, way, towards, said)
            if worth > best:
                best, best_way = worth, way
        return best_way

    def _worth(
        self,
        known: SearchMap,
        place: Pose,
        way: float,
        towards: float,
        said: list[tuple[float, bool]],
    ) -> float:
        off = wrap(way - towards)
        if abs(off) < OUT_OF_VIEW or known.is_solid(place, way, STRIDE):
            return 0.0
        if any(abs(wrap(way - yaw)) < SAYS_BLOCKED for yaw in self.tried):
            return 0.0
        clear = any(c and abs(wrap(yaw - way)) < SAYS_CLEAR for yaw, c in said)
        if not clear and any(not c and abs(wrap(yaw - way)) < SAYS_BLOCKED for yaw, c in said):
            return 0.0
        worth = 1.0 if clear else 0.5
        worth *= max(math.exp(-(((abs(off) - ASIDE) / math.radians(45)) ** 2)), BACK)
        if self.side and (off > 0) == (self.side > 0):
            worth *= 1.6
        end = (place.x + STRIDE * math.cos(way), place.y + STRIDE * math.sin(way))
        if any(math.dist(end, spot) < 0.5 for spot in self.left[:-1]):
            worth *= 0.4
        return worth * (1.0 - 0.1 * abs(wrap(way - place.yaw)))

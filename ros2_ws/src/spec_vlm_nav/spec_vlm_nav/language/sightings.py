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
Parses the target's position from the reasoning: "I see the red chair, left 20 degrees, about 1.5 m".

As with the actions, only this form counts; numbers are never extracted from other prose.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
import re

FARTHEST = 20.0  # metres; larger distances are ignored

_PLACE = re.compile(
    r"(?:^|[.!?\n]\s*)I see [^.!?\n]{1,200}?, "
    r"(?:(?P<ahead>ahead)|(?P<side>left|right) (?P<degrees>\d{1,3}) degrees), "
    r"about (?P<metres>\d{1,2}(?:\.\d{1,2})?) m(?=[,.])"
)


@dataclass(frozen=True)
class Sighting:
    """Where the target was seen: radians, left positive; metres to its surface."""

    bearing: float
    distance: float


def sighting_of(text: str) -> Sighting | None:
    """Return the sighting in a reasoning text, or None."""
    found = _PLACE.search(text[:2000])
    if found is None:
        return None
    degrees = 0 if found["ahead"] else int(found["degrees"])
    distance = float(found["metres"])
    if degrees > 180 or not 0.0 < distance <= FARTHEST:
        return None
    return Sighting(math.radians(degrees if found["side"] != "right" else -degrees), distance)

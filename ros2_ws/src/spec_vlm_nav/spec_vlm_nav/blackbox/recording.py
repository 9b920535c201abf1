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

"""A recording: the ring's content shortly after triggers, with the triggers and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import json
from typing import Any

from spec_vlm_nav.blackbox.ring import RingContents
from spec_vlm_nav.blackbox.triggers import Trigger

METADATA = "spec_vlm_nav.blackbox"
SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """
    The content of one file.

    taken_at (steady clock, s) and taken_ns (wall clock, ns) are the same moment. Receive times are
    converted to wall time by it, so that a jump of the wall clock does not reorder them.
    facts: further metadata, serialisable as JSON.
    """

    triggers: tuple[Trigger, ...]
    more_triggers: int
    contents: RingContents
    taken_at: float
    taken_ns: int
    facts: Mapping[str, Any]

    def time_ns(self, at: float) -> int:
        """Convert a receive time to the wall clock, ns."""
        return self.taken_ns - round((self.taken_at - at) * 1e9)

    @property
    def length_s(self) -> float:
        """Return the time from the first entry to the end of the recording, s."""
        entries = self.contents.entries
        return self.taken_at - entries[0].at if entries else 0.0

    def metadata(self) -> dict[str, str]:
        """Return the triggers and facts as mcap metadata: texts by name."""
        told = [{"time_ns": self.time_ns(t.at), "word": t.word, "detail": t.detail} for t in self.triggers]
        first = self.triggers[0]
        return {
            "schema": str(SCHEMA),
            "reason": first.word,
            "detail": first.detail,
            "time_ns": str(self.time_ns(first.at)),
            "triggers": json.dumps(told),
            "more_triggers": str(self.more_triggers),
            **{k: v if isinstance(v, str) else json.dumps(v) for k, v in self.facts.items()},
        }

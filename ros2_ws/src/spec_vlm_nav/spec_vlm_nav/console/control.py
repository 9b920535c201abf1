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
Control of a robot: one operator at a time, as long as the page sends heartbeats.

Pure: times are arguments, steady clock, s. Control is exclusive. With the dead man's switch, the
robot stops when its operator falls silent or releases control.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _ControlHolder:
    page: int
    name: str
    heard_at: float


class Control:
    """Control of one robot. silence_s: without a heartbeat for this long a page loses control."""

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self._holder: _ControlHolder | None = None

    @property
    def page(self) -> int | None:
        """Return the number of the page in control."""
        return self._holder.page if self._holder else None

    @property
    def name(self) -> str:
        """Return the name of the operator in control, or ""."""
        return self._holder.name if self._holder else ""

    def take(self, page: int, name: str, now: float, by_force: bool) -> str:
        """Take control; returns why not, or "". by_force: even from another operator."""
        if self._holder is not None and self._holder.page != page and not by_force:
            return f"{self._holder.name} has control: take it from them, or ask"
        self._holder = _ControlHolder(page, name, now)
        return ""

    def beat(self, page: int, now: float) -> None:
        """Record a heartbeat."""
        if self._holder is not None and self._holder.page == page:
            self._holder.heard_at = now

    def let_go(self, page: int) -> bool:
        """Release control; returns whether this page had it."""
        had = self.page == page
        if had:
            self._holder = None
        return had

    def lost(self, now: float) -> str:
        """Return the operator who has lost control by silence since the last call, or ""."""
        if self._holder is None or now - self._holder.heard_at <= self.silence_s:
            return ""
        name, self._holder = self._holder.name, None
        return name

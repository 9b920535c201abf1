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
The dead man's switch: a client that makes the robot move must keep sending heartbeats.

An operator's console and a running mission send heartbeats while they hold control. A holder that
falls silent without releasing is lost, and the robot must stand. With `require_operator` nothing
moves unless an operator's console holds control. Receive times on a steady clock, s.
"""

from __future__ import annotations

from dataclasses import dataclass

OPERATOR, MISSION = 0, 1  # as in Presence.msg
MOST_HOLDERS = 16


@dataclass
class _PresenceHolder:
    kind: int
    heard_at: float


class PresenceWatch:
    """The clients that hold control, and those that were lost."""

    def __init__(self) -> None:
        self._holders: dict[str, _PresenceHolder] = {}
        self._had_operator = False

    def hear(self, holder: str, kind: int, holds: bool, now: float) -> None:
        """Record a heartbeat; holds False: the client releases control."""
        if not holds:
            self._holders.pop(holder, None)
        elif holder in self._holders or len(self._holders) < MOST_HOLDERS:
            self._holders[holder] = _PresenceHolder(kind, now)

    def lost(self, now: float, timeout_s: float, require_operator: bool) -> str:
        """Return the clients lost since the last call, or ""; a required operator's last release counts."""
        silent = [n for n, h in self._holders.items() if now - h.heard_at > timeout_s]
        for name in silent:
            del self._holders[name]
        had, self._had_operator = self._had_operator, self.has_operator
        if silent:
            return f"{', '.join(sorted(silent))} fell silent"
        left = require_operator and had and not self._had_operator
        return "the operator let go" if left else ""

    @property
    def has_operator(self) -> bool:
        """Whether an operator's console holds control."""
        return any(h.kind == OPERATOR for h in self._holders.values())

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the names of the holders."""
        return tuple(sorted(self._holders))

    def fault(self, require_operator: bool) -> str:
        """Return why nothing may move, or ""."""
        if require_operator and not self.has_operator:
            return "require_operator: no console of an operator holds control"
        return ""

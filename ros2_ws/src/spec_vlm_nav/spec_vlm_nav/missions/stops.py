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


"""Detects a new stop by the operator: motion_node reports the present one repeatedly."""

from __future__ import annotations


class StopLatch:
    """Remembers the stop in force. Stamps are only compared for equality: clocks may jump."""

    def __init__(self) -> None:
        self._is_told = False  # whether motion_node has reported yet
        self._since: float | None = None

    def is_new(self, by_hand: bool, since: float) -> bool:
        """Record a status; returns whether it shows a new stop."""
        stopped = since if by_hand else None
        is_new = self._is_told and by_hand and stopped != self._since
        self._since, self._is_told = stopped, True
        return is_new

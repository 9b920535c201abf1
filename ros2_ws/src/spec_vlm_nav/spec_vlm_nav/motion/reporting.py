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

"""When the status of the moving side is told: every change, and the present state now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from spec_vlm_nav.common.status import Status
from spec_vlm_nav.motion.core import MotionCore

HEARTBEAT_S = 0.5
MOVING_S = 0.1  # between two reports of a motion under way

Stamp = TypeVar("Stamp")


@dataclass(frozen=True)
class StatusReport(Generic[Stamp]):
    """A status to publish now; `since`: the stamp at which its state began."""

    status: Status
    stamp: Stamp
    since: Stamp
    is_new: bool


class Reporting(Generic[Stamp]):
    """Of one core, whose ticks come at `rate_hz`; `clock` gives the stamps."""

    def __init__(self, core: MotionCore, rate_hz: float, clock: Callable[[], Stamp]) -> None:
        self._core, self._half_a_tick, self._clock = core, 0.5 / rate_hz, clock
        self._reported_at = -HEARTBEAT_S
        self._since, self._key = clock(), core.state_key

    def due(self, now: float) -> list[StatusReport[Stamp]]:
        """Return what has to be reported at a time of the steady clock, s."""
        events = self._core.take_events()
        # Half a tick early: a period that just misses would be a whole tick late.
        period = (MOVING_S if self._core.is_moving else HEARTBEAT_S) - self._half_a_tick
        if not events and now - self._reported_at < period:
            return []
        self._reported_at, stamp = now, self._clock()
        if self._core.state_key != self._key:
            self._key, self._since = self._core.state_key, stamp
        return [
            StatusReport(self._core.as_of(now, status), stamp, self._since, bool(events))
            for status in events or [self._core.status]
        ]

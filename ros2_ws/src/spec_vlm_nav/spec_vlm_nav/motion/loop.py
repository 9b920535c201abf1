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
The control loop around MotionCore: decides when velocities, stops and reports are sent.

`motion_node` feeds it with messages and publishes its outputs; tests run the same loop in simulated
time. The end of a motion takes effect at once, not at the next tick. Every status change is
reported, and the current status is repeated periodically.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from spec_vlm_nav.common.geometry import Velocity
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.stopping import RestDetector

HEARTBEAT_S = 0.5
MOVING_S = 0.1  # interval between reports of a motion under way

Stamp = TypeVar("Stamp")


class VelocityOutput(Protocol):
    """Receives the velocities."""

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Send the velocity of one tick; rest: what odometry shows while no motion is commanded."""

    def stop(self) -> bool:
        """Send a stop now; returns whether it was a zero velocity."""


@dataclass(frozen=True)
class StatusReport(Generic[Stamp]):
    """A status to publish; since: the stamp at which its state began."""

    status: Status
    stamp: Stamp
    since: Stamp
    is_new: bool


class MotionLoop(Generic[Stamp]):
    """
    The control loop of one core; call `tick` at `rate_hz`.

    publish: receives the reports. clock: returns seconds of a steady clock. stamps: returns the
    stamp of a report.
    """

    def __init__(
        self,
        core: MotionCore,
        output: VelocityOutput,
        publish: Callable[[StatusReport[Stamp]], None],
        rate_hz: float,
        clock: Callable[[], float],
        stamps: Callable[[], Stamp],
    ) -> None:
        self._core, self._output, self._publish = core, output, publish
        self._half_a_tick, self._clock, self._stamps = 0.5 / rate_hz, clock, stamps
        self._was_moving = False
        self._reported_at = -HEARTBEAT_S
        self._since, self._key = stamps(), core.state_key

    def tick(self) -> None:
        """Send the velocity of this tick."""
        now = self._clock()
        self._output.send(self._core.tick(now), self._core.rest(now))
        self._was_moving = self._core.is_moving
        self._report(now)

    def follow(self) -> None:
        """Stop now, not at the next tick, if the core's last input ended the motion."""
        if (self._was_moving and not self._core.is_moving) or self._core.take_pushed():
            self._output.stop()
            self._report(self._clock())
        self._was_moving = self._core.is_moving

    def command(self, command: Command, unproven: str = "") -> None:
        """
        Carry out a command or refuse it; STOP and HOLD are sent to the robot at once.

        unproven: see SafetyGate.admit.
        """
        self._core.on_command(command, self._clock(), unproven)
        if command.kind is not CommandKind.MOVE:
            self._output.stop()
            self._was_moving = False
        self.follow()
        self._report(self._clock())

    def stand(self) -> None:
        """Send a stop now: the operator has stopped or reset the core."""
        self._output.stop()
        self._was_moving = False
        self._report(self._clock())

    def _report(self, now: float) -> None:
        # The list is complete before the first is published: publishing may latch a stop, which reports too.
        for told in self._due(now):
            self._publish(told)

    def _due(self, now: float) -> list[StatusReport[Stamp]]:
        events = self._core.take_events()
        # Half a tick early: a report that just misses its period would be a whole tick late.
        period = (MOVING_S if self._core.is_moving else HEARTBEAT_S) - self._half_a_tick
        if not events and now - self._reported_at < period:
            return []
        self._reported_at, stamp = now, self._stamps()
        if self._core.state_key != self._key:
            self._key, self._since = self._core.state_key, stamp
        return [
            StatusReport(self._core.as_of(now, status), stamp, self._since, bool(events))
            for status in events or [self._core.status]
        ]

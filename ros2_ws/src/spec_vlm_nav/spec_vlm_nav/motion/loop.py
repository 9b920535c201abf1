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
The control loop around MotionCore: when velocities, stops and reports go out.

`motion_node` tells it what was heard and publishes what comes out; tests run the same loop in
simulated time. Whatever ends a motion is obeyed at once, not at the next tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol

from spec_vlm_nav.common.geometry import Velocity
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.reporting import Reporting, Stamp, StatusReport
from spec_vlm_nav.motion.stopping import RestDetector


class VelocityOutput(Protocol):
    """Where velocities go."""

    def send(self, velocity: Velocity, rest: RestDetector) -> None:
        """Send the velocity of one tick; `rest`: what odometry shows while nothing is asked."""
        ...

    def stop(self) -> object:
        """Send what makes the robot stand still, now."""
        ...


class MotionLoop(Generic[Stamp]):
    """Of one core; `clock` gives seconds of a steady clock, `publish` takes what is to be reported."""

    def __init__(
        self,
        core: MotionCore,
        output: VelocityOutput,
        reporting: Reporting[Stamp],
        publish: Callable[[StatusReport[Stamp]], None],
        clock: Callable[[], float],
    ) -> None:
        self._core, self._output, self._reporting = core, output, reporting
        self._publish, self._clock = publish, clock
        self._was_moving = False

    def tick(self) -> None:
        """Send the velocity of this tick."""
        now = self._clock()
        self._output.send(self._core.tick(now), self._core.rest(now))
        self._was_moving = self._core.is_moving
        self._report(now)

    def follow(self) -> None:
        """Stop now, not at the next tick, when what the core has just heard ended the motion."""
        if (self._was_moving and not self._core.is_moving) or self._core.take_pushed():
            self._output.stop()
            self._report(self._clock())
        self._was_moving = self._core.is_moving

    def command(self, command: Command, unproven: str = "") -> None:
        """
        Carry a command out, or refuse it; the robot is told at once to stand where it is to.

        unproven: see SafetyGate.admit.
        """
        self._core.on_command(command, self._clock(), unproven)
        if command.kind is not CommandKind.MOVE:
            self._output.stop()
            self._was_moving = False
        self.follow()
        self._report(self._clock())

    def stand(self) -> None:
        """Stop now: the operator has stopped or reset the core."""
        self._output.stop()
        self._was_moving = False
        self._report(self._clock())

    def _report(self, now: float) -> None:
        for told in self._reporting.due(now):
            self._publish(told)

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
Motion back-ends without ROS: what is sent for a velocity, and what makes the robot stand still.

`twist` needs nothing here: a velocity is a Twist; `nav2` is in a module of its own. `go2_sport`
speaks the Unitree Go2's sport API: requests with a number and a JSON parameter. An encoder decides
nothing about motion: velocities come out of the safety gate; it only keeps them within what the
robot itself takes, and never sends a number that is none.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import math

from spec_vlm_nav.executor import Velocity

BACKENDS = ('twist', 'go2_sport', 'nav2', 'auto')

MOVE, STOP_MOVE = 1008, 1003  # api ids
STOP_REPEATS = 5  # a stop is said so often: one may be lost

FORWARD_MPS = (-2.5, 3.8)
SIDEWAYS_MPS = (-1.0, 1.0)
YAW_RPS = (-4.0, 4.0)


@dataclass(frozen=True)
class SportRequest:
    """One request to the robot: the number of the function and its parameter, JSON or ""."""

    api_id: int
    parameter: str = ''


def _within(value: float, limits: tuple[float, float]) -> float:
    # Six decimals are a micrometre a second; + 0.0 makes -0.0 an ordinary zero.
    return round(max(limits[0], min(limits[1], value)), 6) + 0.0


def move(forward: float, sideways: float, yaw_rate: float) -> SportRequest:
    """
    Return Move within the robot's limits, m/s and rad/s.

    It is Move(0, 0, 0) where one is NaN or infinite.
    """
    if not all(math.isfinite(v) for v in (forward, sideways, yaw_rate)):
        forward = sideways = yaw_rate = 0.0
    parameter = {
        'x': _within(forward, FORWARD_MPS),
        'y': _within(sideways, SIDEWAYS_MPS),
        'z': _within(yaw_rate, YAW_RPS),
    }
    return SportRequest(MOVE, json.dumps(parameter, separators=(',', ':')))


STOP = (move(0.0, 0.0, 0.0), SportRequest(STOP_MOVE))


class Go2Sport:
    """
    Turns the gate's velocities, one a tick, into requests.

    While the robot moves every tick is a Move (the robot holds one for 1 s). A standing robot is
    told so a few times and then left alone: requests without end would take it away from its
    remote control.
    """

    def __init__(self) -> None:
        self._stops_left = 0

    def velocity(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        """Return what to send in this tick."""
        moving = velocity.linear != 0 or velocity.angular != 0
        if moving and math.isfinite(velocity.linear) and math.isfinite(velocity.angular):
            self._stops_left = STOP_REPEATS
            return (move(velocity.linear, 0.0, velocity.angular),)
        if moving:  # not a number
            return self.stop()
        if not self._stops_left:
            return ()
        self._stops_left -= 1
        return STOP

    def stop(self) -> tuple[SportRequest, ...]:
        """Return what stops the robot, whatever moves it; said again in the ticks that follow."""
        self._stops_left = STOP_REPEATS
        return STOP

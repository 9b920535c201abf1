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
speaks the Unitree Go2's APIs: requests to one of its services, with a number and a JSON parameter.
An encoder decides nothing about motion: velocities come out of the safety gate; it only keeps them
within what the robot itself takes, and never sends a number that is none.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import math

from spec_vlm_nav.common.geometry import Velocity

BACKENDS = ("twist", "go2_sport", "nav2", "auto")

SPORT, OBSTACLES_AVOID = "sport", "obstacles_avoid"  # services
# Api ids: the same number is something else to each service.
MOVE, STOP_MOVE = 1008, 1003
AVOID_SWITCH, AVOID_MOVE, AVOID_LISTEN = 1001, 1003, 1004
STOP_REPEATS = 5  # a stop is said so often: one may be lost

FORWARD_MPS = (-2.5, 3.8)
SIDEWAYS_MPS = (-1.0, 1.0)
YAW_RPS = (-4.0, 4.0)


@dataclass(frozen=True)
class SportRequest:
    """
    One request to the robot.

    The number of the function, its parameter (JSON or ""), and the service that it is of.
    """

    api_id: int
    parameter: str = ""
    service: str = SPORT


def _within(value: float, limits: tuple[float, float]) -> float:
    # Six decimals are a micrometre a second; + 0.0 makes -0.0 an ordinary zero.
    return round(max(limits[0], min(limits[1], value)), 6) + 0.0


def _speeds(forward: float, sideways: float, yaw_rate: float) -> tuple[float, float, float]:
    """Return speeds within the robot's limits; zeros where one is NaN or infinite."""
    if not all(math.isfinite(v) for v in (forward, sideways, yaw_rate)):
        forward = sideways = yaw_rate = 0.0
    return (
        _within(forward, FORWARD_MPS),
        _within(sideways, SIDEWAYS_MPS),
        _within(yaw_rate, YAW_RPS),
    )


def _json(**parameter: float | bool) -> str:
    return json.dumps(parameter, separators=(",", ":"))


def move(forward: float, sideways: float, yaw_rate: float) -> SportRequest:
    """
    Return Move within the robot's limits, m/s and rad/s.

    It is Move(0, 0, 0) where one is NaN or infinite.
    """
    x, y, z = _speeds(forward, sideways, yaw_rate)
    return SportRequest(MOVE, _json(x=x, y=y, z=z))


def avoiding_move(forward: float, sideways: float, yaw_rate: float) -> SportRequest:
    """Return the same, for the service that walks around obstacles; mode 0: velocities."""
    x, y, yaw = _speeds(forward, sideways, yaw_rate)
    return SportRequest(AVOID_MOVE, _json(x=x, y=y, yaw=yaw, mode=0), OBSTACLES_AVOID)


def avoidance(enable: bool) -> SportRequest:
    """Switch the robot's own obstacle avoidance on or off."""
    return SportRequest(AVOID_SWITCH, _json(enable=enable), OBSTACLES_AVOID)


def listen_to_us(on: bool) -> SportRequest:
    """Have the avoidance take velocities from requests, or from the remote control."""
    return SportRequest(AVOID_LISTEN, _json(is_remote_commands_from_api=on), OBSTACLES_AVOID)


STOP = (move(0.0, 0.0, 0.0), SportRequest(STOP_MOVE))


class Go2Sport:
    """
    Turns the gate's velocities, one a tick, into requests.

    While the robot moves every tick is a Move (the robot holds one for 1 s). A standing robot is
    told so a few times and then left alone: requests without end would take it away from its
    remote control.
    """

    services: tuple[str, ...] = (SPORT,)

    def __init__(self) -> None:
        self._stops_left = 0

    def begin(self) -> tuple[SportRequest, ...]:
        """Return what is sent once, when the robot is found."""
        return ()

    def velocity(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        """Return what to send in this tick."""
        moving = velocity.linear != 0 or velocity.angular != 0
        if moving and math.isfinite(velocity.linear) and math.isfinite(velocity.angular):
            self._stops_left = STOP_REPEATS
            return self._moves(velocity)
        if moving:  # not a number
            return self.stop()
        if not self._stops_left:
            return self.release()
        self._stops_left -= 1
        return self._stops()

    def stop(self) -> tuple[SportRequest, ...]:
        """Return what stops the robot, whatever moves it; said again in the ticks that follow."""
        self._stops_left = STOP_REPEATS
        return self._stops()

    def release(self) -> tuple[SportRequest, ...]:
        """Return what gives a standing robot back to its remote control."""
        return ()

    def _moves(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        return (move(velocity.linear, 0.0, velocity.angular),)

    def _stops(self) -> tuple[SportRequest, ...]:
        return STOP


class Go2Avoiding(Go2Sport):
    """
    The same through the Go2's own obstacle avoidance, which may slow down, stop or sidestep.

    While that listens to us it does not hear the remote control: it is asked to listen when a
    motion begins, and released when the robot stands. A stop is said to it and, as without it, to
    the sport service: it holds whether the avoidance is on, off, or not there at all.
    """

    services = (SPORT, OBSTACLES_AVOID)

    def __init__(self) -> None:
        super().__init__()
        self._is_heard = False  # the avoidance was asked to listen to us

    def begin(self) -> tuple[SportRequest, ...]:
        """Return what is sent once, when the robot is found."""
        # A process that was killed in mid-motion could not release it.
        return (avoidance(True), listen_to_us(False))

    def release(self) -> tuple[SportRequest, ...]:
        """Return what gives a standing robot back to its remote control."""
        was_heard, self._is_heard = self._is_heard, False
        return (listen_to_us(False),) if was_heard else ()

    def _moves(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        moves = (avoiding_move(velocity.linear, 0.0, velocity.angular),)
        if self._is_heard:
            return moves
        self._is_heard = True
        # On again: it may have been switched off, or the robot started, since `begin`.
        return (avoidance(True), listen_to_us(True), *moves)

    def _stops(self) -> tuple[SportRequest, ...]:
        return (avoiding_move(0.0, 0.0, 0.0), *STOP)

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
Encodes velocities and stops for the Unitree Go2 (back-end `go2_sport`).

`twist` needs no encoder, and `nav2` has its own module. `go2_sport` sends requests to the Go2's
services, each with an API id and a JSON parameter. An encoder decides nothing about motion: the
velocities come from the safety gate. It only clamps them to the robot's limits, and never sends
NaN or infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import math

from spec_vlm_nav.common.geometry import Velocity

BACKENDS = ("twist", "go2_sport", "nav2", "auto")

SPORT, OBSTACLES_AVOID = "sport", "obstacles_avoid"  # services
# API ids; each service has its own numbering.
MOVE, STOP_MOVE = 1008, 1003
AVOID_SWITCH, AVOID_MOVE, AVOID_LISTEN = 1001, 1003, 1004
STOP_REPEATS = 5  # a stop is sent this many times: a request may be lost

FORWARD_MPS = (-2.5, 3.8)
YAW_RPS = (-4.0, 4.0)


@dataclass(frozen=True)
class SportRequest:
    """
    One request to the robot.

    api_id: number of the function. parameter: JSON or "". service: the service it belongs to.
    """

    api_id: int
    parameter: str = ""
    service: str = SPORT


def _within(value: float, limits: tuple[float, float]) -> float:
    # Six decimals are a micrometre per second; + 0.0 turns -0.0 into 0.0.
    return round(max(limits[0], min(limits[1], value)), 6) + 0.0


def _speeds(forward: float, yaw_rate: float) -> tuple[float, float]:
    """Return the speeds clamped to the robot's limits; zeros if one is NaN or infinite."""
    if not (math.isfinite(forward) and math.isfinite(yaw_rate)):
        forward = yaw_rate = 0.0
    return _within(forward, FORWARD_MPS), _within(yaw_rate, YAW_RPS)


def _json(**parameter: float | bool) -> str:
    return json.dumps(parameter, separators=(",", ":"))


def move(forward: float, yaw_rate: float) -> SportRequest:
    """
    Return a Move request clamped to the robot's limits, m/s and rad/s; it never goes sideways.

    It is Move(0, 0, 0) if a speed is NaN or infinite.
    """
    x, z = _speeds(forward, yaw_rate)
    return SportRequest(MOVE, _json(x=x, y=0.0, z=z))


def avoiding_move(forward: float, yaw_rate: float) -> SportRequest:
    """Return a move request for the service obstacles_avoid; mode 0: velocities."""
    x, yaw = _speeds(forward, yaw_rate)
    return SportRequest(AVOID_MOVE, _json(x=x, y=0.0, yaw=yaw, mode=0), OBSTACLES_AVOID)


def avoidance(enable: bool) -> SportRequest:
    """Return the request that switches the robot's own obstacle avoidance on or off."""
    return SportRequest(AVOID_SWITCH, _json(enable=enable), OBSTACLES_AVOID)


def listen_to_us(on: bool) -> SportRequest:
    """Return the request that makes the avoidance obey requests (on) or the remote control."""
    return SportRequest(AVOID_LISTEN, _json(is_remote_commands_from_api=on), OBSTACLES_AVOID)


STOP = (move(0.0, 0.0), SportRequest(STOP_MOVE))


class Go2Sport:
    """
    Turns the gate's velocities, one per tick, into requests.

    While the robot moves, every tick sends a Move (the robot holds one for 1 s). A standing robot
    receives a few stops and then nothing: endless requests would override its remote control.
    """

    services: tuple[str, ...] = (SPORT,)

    def __init__(self) -> None:
        self._stops_left = 0

    def begin(self) -> tuple[SportRequest, ...]:
        """Return the requests to send once, when the robot is found."""
        return ()

    def velocity(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        """Return the requests of this tick."""
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
        """Return the requests that stop the robot; the following ticks repeat them."""
        self._stops_left = STOP_REPEATS
        return self._stops()

    def release(self) -> tuple[SportRequest, ...]:
        """Return the requests that hand a standing robot back to its remote control."""
        return ()

    def _moves(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        return (move(velocity.linear, velocity.angular),)

    def _stops(self) -> tuple[SportRequest, ...]:
        return STOP


class Go2Avoiding(Go2Sport):
    """
    Sends motions through the Go2's own obstacle avoidance, which may slow down, stop or sidestep.

    While the avoidance obeys requests, it ignores the remote control. So it is switched to requests
    when a motion begins, and back when the robot stands. A stop goes to the avoidance and to the
    sport service, so that it holds whether the avoidance is on, off or missing.
    """

    services = (SPORT, OBSTACLES_AVOID)

    def __init__(self) -> None:
        super().__init__()
        self._is_heard = False  # the avoidance was switched to requests

    def begin(self) -> tuple[SportRequest, ...]:
        """Return the requests to send once, when the robot is found."""
        # A previous process that was killed during a motion could not release the avoidance.
        return (avoidance(True), listen_to_us(False))

    def release(self) -> tuple[SportRequest, ...]:
        """Return the requests that hand a standing robot back to its remote control."""
        was_heard, self._is_heard = self._is_heard, False
        return (listen_to_us(False),) if was_heard else ()

    def _moves(self, velocity: Velocity) -> tuple[SportRequest, ...]:
        moves = (avoiding_move(velocity.linear, velocity.angular),)
        if self._is_heard:
            return moves
        self._is_heard = True
        # Switched on again: it may have been switched off, or the robot restarted, since `begin`.
        return (avoidance(True), listen_to_us(True), *moves)

    def _stops(self) -> tuple[SportRequest, ...]:
        return (avoiding_move(0.0, 0.0), *STOP)

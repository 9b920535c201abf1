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
Carries out one motion (a distance or an angle) in a closed loop over odometry.

It has tolerances, a timeout and a contact check. Inputs are poses and the time; outputs are
velocities and a state. It uses only poses: many drivers never fill the odometry's twist. It never
runs longer than its timeout and never turns back to correct an overshoot. `Executor` is the base
class of everything that carries out motions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
import math

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, NO_MOTION, Pose, Velocity, wrap, ZERO
from spec_vlm_nav.common.parameters import fixed

NO_PROGRESS = "no progress: blocked by an obstacle?"


@dataclass(frozen=True)
class ExecutorConfig:
    """Speeds, tolerances and times of the executor; SI units."""

    linear_speed: float = 0.5
    angular_speed: float = 0.8
    linear_tolerance: float = 0.02
    angular_tolerance: float = math.radians(1.5)
    linear_gain: float = fixed(4.0)  # 1/s: commanded speed per remaining metre
    angular_gain: float = fixed(5.0)
    slowest_linear: float = 0.06
    slowest_angular: float = 0.12
    heading_gain: float = fixed(1.5)  # 1/s: keeps the heading on a straight motion
    timeout_factor: float = fixed(2.0)  # times the duration of the motion at full speed
    timeout_extra_s: float = fixed(1.5)
    blocked_after_s: float = 0.7  # without progress while commanded to move
    response_timeout_s: float = 0.0  # extra time before the first progress: the base's delay
    blocked_linear: float = fixed(0.01)  # smallest progress that counts, m
    blocked_angular: float = fixed(math.radians(1.0))
    pushed_aside: float = fixed(0.1)  # m off the straight line: sliding along something
    settle_timeout_s: float = fixed(0.6)
    settle_window_s: float = fixed(0.1)
    still_linear: float = fixed(0.005)  # most movement within the window that counts as standing still
    still_angular: float = fixed(math.radians(0.5))
    corrections: int = fixed(2)  # how often a motion that ended short is resumed
    correct_from: float = fixed(2.0)  # shortfall that is corrected, in tolerances


def _towards(remaining: float, gain: float, slowest: float, fastest: float) -> float:
    """
    Return a speed proportional to `remaining`, with its sign.

    Its magnitude is at least `slowest` (legs and wheels do not creep) and at most `fastest`.
    """
    return math.copysign(min(fastest, max(slowest, gain * abs(remaining))), remaining)


class Track:
    """
    The movement since an initial pose, by odometry.

    Metres along the initial heading, metres to the side, radians turned.
    """

    def __init__(self, origin: Pose) -> None:
        self.origin, self.turned = origin, 0.0
        self._last_yaw = origin.yaw

    def follow(self, pose: Pose) -> None:
        """Add the next pose; turns are summed up, so that they may exceed pi."""
        self.turned += wrap(pose.yaw - self._last_yaw)
        self._last_yaw = pose.yaw

    def covered(self, pose: Pose) -> float:
        """Distance along the heading at the start, metres."""
        dx, dy = pose.x - self.origin.x, pose.y - self.origin.y
        return dx * math.cos(self.origin.yaw) + dy * math.sin(self.origin.yaw)

    def aside(self, pose: Pose) -> float:
        """Distance from the straight line of the motion, metres, left positive."""
        dx, dy = pose.x - self.origin.x, pose.y - self.origin.y
        return dy * math.cos(self.origin.yaw) - dx * math.sin(self.origin.yaw)

    def done(self, pose: Pose) -> Motion:
        """Return the movement up to this pose."""
        return Motion(self.covered(pose), self.turned)


class Settling:
    """Waits until the base stands still, at most settle_timeout_s."""

    def __init__(self, pose: Pose, now: float, config: ExecutorConfig) -> None:
        self._since, self._still, self._config = now, (pose, now), config

    def is_over(self, pose: Pose, now: float, in_flight: Motion = NO_MOTION) -> bool:
        """Return whether the base stood still for settle_window_s with no motion in flight."""
        c = self._config
        then, since = self._still
        moved = pose.distance(then) > c.still_linear
        comes = abs(in_flight.distance_m) > c.still_linear or abs(in_flight.angle_rad) > c.still_angular
        if comes or moved or abs(wrap(pose.yaw - then.yaw)) > c.still_angular:
            self._still = (pose, now)
            if comes:
                self._since = now
        elif now - since >= c.settle_window_s:
            return True
        return now - self._since > c.settle_timeout_s


class Executor(ABC):
    """
    One motion at a time.

    Call `start`, then `update` at every tick until a final state; `reason` then explains it.
    """

    sends_velocities = True  # False: another process drives the base

    def __init__(self, config: ExecutorConfig | None = None) -> None:
        self.config = config or ExecutorConfig()
        self.reason = ""
        self._motion: Motion | None = None
        self._track: Track | None = None
        self._started = 0.0
        self._settling: Settling | None = None

    def start(self, motion: Motion, pose: Pose, now: float, allowance_s: float = math.inf) -> None:
        """
        Begin a motion at this pose.

        now: seconds of any steady clock. allowance_s: longest duration of the motion, s.
        """
        self._motion, self._track, self.reason = motion, Track(pose), ""
        self._started, self._settling = now, None

    @abstractmethod
    def update(self, pose: Pose, now: float, in_flight: Motion = NO_MOTION) -> tuple[Velocity, MotionState]:
        """
        Return the velocity to command and the state; all but MOVING and SETTLING are final.

        in_flight: commanded motion that odometry cannot show yet, metres and radians. A final state
        ends the motion (velocity zero).
        """

    def cancel(self) -> None:
        """End the motion now."""
        self._motion = None

    @property
    def is_active(self) -> bool:
        """Whether a motion is under way."""
        return self._motion is not None

    def done(self, pose: Pose) -> Motion:
        """Return the motion covered since the last start, by odometry."""
        return self._track.done(pose) if self._track else NO_MOTION

    def _finish(self, progress: MotionState, reason: str = "") -> tuple[Velocity, MotionState]:
        self._motion, self.reason = None, reason
        return ZERO, progress


class MotionExecutor(Executor):
    """Carries out motions by commanding velocities."""

    def start(self, motion: Motion, pose: Pose, now: float, allowance_s: float = math.inf) -> None:
        super().start(motion, pose, now, allowance_s)
        self._allowance_s = allowance_s
        self._best = (0.0, now)  # furthest progress so far and when it was made
        self._corrections = 0

    def timeout_s(self, motion: Motion) -> float:
        """Return the timeout of a motion, s."""
        nominal = (
            abs(motion.distance_m) / self.config.linear_speed
            + abs(motion.angle_rad) / self.config.angular_speed
        )
        c = self.config
        return nominal * c.timeout_factor + c.timeout_extra_s + 2 * c.response_timeout_s

    def update(self, pose: Pose, now: float, in_flight: Motion = NO_MOTION) -> tuple[Velocity, MotionState]:
        if self._motion is None or self._track is None:
            return ZERO, MotionState.REACHED
        self._track.follow(pose)
        if self._settling is not None:
            if not self._settling.is_over(pose, now, in_flight):
                return _SETTLING
            if not self._is_short(self._motion, self._track, pose):
                return self._finish(MotionState.REACHED)
            self._settling = None
            self._corrections += 1
            self._best = (self._best[0], now)
        if now - self._started > min(self._allowance_s, self.timeout_s(self._motion)):
            return self._finish(MotionState.EXPIRED, "not reached in time")
        if self._motion.angle_rad:
            return self._turn(self._motion.angle_rad, self._track, pose, now, in_flight)
        return self._drive(self._motion.distance_m, self._track, pose, now, in_flight)

    def _is_short(self, motion: Motion, track: Track, pose: Pose) -> bool:
        """Return whether the base stands well short of the goal and may try again."""
        c = self.config
        if self._corrections >= c.corrections:
            return False
        if motion.angle_rad:
            left, tolerance = motion.angle_rad - track.turned, c.angular_tolerance
        else:
            left, tolerance = motion.distance_m - track.covered(pose), c.linear_tolerance
        forward = left * (motion.angle_rad or motion.distance_m) > 0
        return forward and abs(left) > c.correct_from * tolerance

    def _turn(
        self, angle: float, track: Track, pose: Pose, now: float, in_flight: Motion
    ) -> tuple[Velocity, MotionState]:
        c = self.config
        remaining = angle - track.turned - in_flight.angle_rad
        if abs(remaining) <= c.angular_tolerance or remaining * angle < 0:
            return self._settle(pose, now)
        if self._is_blocked(math.copysign(1.0, angle) * track.turned, c.blocked_angular, now):
            return self._finish(MotionState.BLOCKED, NO_PROGRESS)
        speed = _towards(remaining, c.angular_gain, c.slowest_angular, c.angular_speed)
        return Velocity(0.0, speed), MotionState.MOVING

    def _drive(
        self, distance: float, track: Track, pose: Pose, now: float, in_flight: Motion
    ) -> tuple[Velocity, MotionState]:
        c = self.config
        covered = track.covered(pose)
        remaining = distance - covered - in_flight.distance_m
        if abs(remaining) <= c.linear_tolerance or remaining * distance < 0:
            return self._settle(pose, now)
        if abs(track.aside(pose)) > c.pushed_aside:
            return self._finish(MotionState.BLOCKED, "pushed aside: blocked by an obstacle?")
        if self._is_blocked(math.copysign(1.0, distance) * covered, c.blocked_linear, now):
            return self._finish(MotionState.BLOCKED, NO_PROGRESS)
        heading = -wrap(pose.yaw - track.origin.yaw) * c.heading_gain
        steer = max(-0.5 * c.angular_speed, min(0.5 * c.angular_speed, heading))
        speed = _towards(remaining, c.linear_gain, c.slowest_linear, c.linear_speed)
        return Velocity(speed, steer), MotionState.MOVING

    def _is_blocked(self, progress: float, counts: float, now: float) -> bool:
        best, since = self._best
        if progress > best + counts:
            self._best = (progress, now)
            return False
        c = self.config
        patience = c.blocked_after_s + (0.0 if best else c.response_timeout_s)
        return now - since > patience

    def _settle(self, pose: Pose, now: float) -> tuple[Velocity, MotionState]:
        self._settling = Settling(pose, now, self.config)
        return _SETTLING


_SETTLING = (ZERO, MotionState.SETTLING)

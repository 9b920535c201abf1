"""Carries out one motion (a distance or an angle) closed over odometry, with tolerance, time-out and contact check.

Poses and the time come in, velocities and a state go out. It trusts only poses: many drivers never fill the odometry's
twist. It must never go on for longer than its time-out, and never turns round to correct an overshoot.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Pose:
    """Planar pose: metres, metres, radians."""

    x: float
    y: float
    yaw: float

    @property
    def is_finite(self) -> bool:
        """Whether all three are numbers."""
        return math.isfinite(self.x) and math.isfinite(self.y) and math.isfinite(self.yaw)


@dataclass(frozen=True)
class Velocity:
    """Forward speed, m/s, and yaw rate, rad/s (left positive)."""

    linear: float = 0.0
    angular: float = 0.0


ZERO = Velocity()


@dataclass(frozen=True)
class Motion:
    """What to carry out: exactly one of the two is not zero. Metres (forward positive), radians (left positive)."""

    distance_m: float = 0.0
    angle_rad: float = 0.0


NO_MOTION = Motion()


class Progress(enum.Enum):
    """Where a motion stands. All but MOVING and SETTLING are final."""

    MOVING = "moving"
    SETTLING = "settling"  # within tolerance, waiting for the base to stand still
    REACHED = "reached"
    BLOCKED = "blocked"
    EXPIRED = "expired"


@dataclass(frozen=True)
class ExecutorConfig:
    """Speeds, tolerances and times of the executor; SI units."""

    linear_speed: float = 0.5
    angular_speed: float = 0.8
    linear_tolerance: float = 0.02
    angular_tolerance: float = math.radians(1.5)
    linear_gain: float = 4.0  # 1/s: speed asked for per metre left
    angular_gain: float = 5.0
    slowest_linear: float = 0.06
    slowest_angular: float = 0.12
    heading_gain: float = 1.5  # 1/s: keeps the heading on a straight motion
    timeout_factor: float = 2.0  # of the time the motion would take at full speed
    timeout_extra_s: float = 1.5
    blocked_after_s: float = 0.7  # without progress, while asked to move
    blocked_linear: float = 0.01  # progress, m, that counts
    blocked_angular: float = math.radians(1.0)
    pushed_aside: float = 0.1  # m off the straight line: sliding along something
    settle_timeout_s: float = 0.6
    settle_window_s: float = 0.1
    still_linear: float = 0.005  # movement within the window that counts as standing still
    still_angular: float = math.radians(0.5)


def wrap(angle: float) -> float:
    """Return the angle in (-pi, pi]."""
    return math.atan2(math.sin(angle), math.cos(angle))


def _towards(remaining: float, gain: float, slowest: float, fastest: float) -> float:
    """Proportional speed with a floor (legs and wheels do not creep) and a ceiling, signed like `remaining`."""
    return math.copysign(min(fastest, max(slowest, gain * abs(remaining))), remaining)


class MotionExecutor:
    """One motion at a time: `start`, then `update` at every tick until a final state."""

    def __init__(self, config: ExecutorConfig | None = None) -> None:
        self.config = config or ExecutorConfig()
        self._motion: Motion | None = None
        self._origin: Pose | None = None

    def start(self, motion: Motion, pose: Pose, now: float) -> None:
        """Begin a motion at this pose; `now` in seconds of any steady clock."""
        self._motion = motion
        self._origin = pose
        self._last_yaw = pose.yaw
        self._turned = 0.0
        self._started = now
        self._best = (0.0, now)  # furthest progress so far and when it was made
        self._still: tuple[Pose, float] | None = None
        self._settling_since: float | None = None

    def cancel(self) -> None:
        """Forget the motion."""
        self._motion = None

    @property
    def is_active(self) -> bool:
        """Whether a motion is under way."""
        return self._motion is not None

    def done(self, pose: Pose) -> Motion:
        """Return what has been covered since the last start, as seen by odometry."""
        if self._origin is None:
            return Motion()
        return Motion(self._covered(pose), self._turned)

    def timeout_s(self, motion: Motion) -> float:
        """Return after how long the executor gives a motion up."""
        nominal = (
            abs(motion.distance_m) / self.config.linear_speed
            + abs(motion.angle_rad) / self.config.angular_speed
        )
        return nominal * self.config.timeout_factor + self.config.timeout_extra_s

    def update(self, pose: Pose, now: float) -> tuple[Velocity, Progress]:
        """Return the velocity to ask for and the state; a final state ends the motion (velocity zero)."""
        if self._motion is None:
            return ZERO, Progress.REACHED
        self._turned += wrap(pose.yaw - self._last_yaw)
        self._last_yaw = pose.yaw
        if self._settling_since is not None:
            return ZERO, self._settle(pose, now)
        if now - self._started > self.timeout_s(self._motion):
            return self._finish(Progress.EXPIRED)
        if self._motion.angle_rad:
            return self._turn(self._motion.angle_rad, pose, now)
        return self._drive(self._motion.distance_m, pose, now)

    def _turn(self, angle: float, pose: Pose, now: float) -> tuple[Velocity, Progress]:
        c = self.config
        remaining = angle - self._turned
        if abs(remaining) <= c.angular_tolerance or remaining * angle < 0:
            return ZERO, self._begin_settling(pose, now)
        if self._is_blocked(math.copysign(1.0, angle) * self._turned, c.blocked_angular, now):
            return self._finish(Progress.BLOCKED)
        return Velocity(
            0.0, _towards(remaining, c.angular_gain, c.slowest_angular, c.angular_speed)
        ), Progress.MOVING

    def _drive(self, distance: float, pose: Pose, now: float) -> tuple[Velocity, Progress]:
        c = self.config
        covered = self._covered(pose)
        remaining = distance - covered
        if abs(remaining) <= c.linear_tolerance or remaining * distance < 0:
            return ZERO, self._begin_settling(pose, now)
        aside = abs(self._aside(pose)) > c.pushed_aside
        if aside or self._is_blocked(math.copysign(1.0, distance) * covered, c.blocked_linear, now):
            return self._finish(Progress.BLOCKED)
        assert self._origin is not None
        heading = -wrap(pose.yaw - self._origin.yaw) * c.heading_gain
        steer = max(-0.5 * c.angular_speed, min(0.5 * c.angular_speed, heading))
        return Velocity(
            _towards(remaining, c.linear_gain, c.slowest_linear, c.linear_speed), steer
        ), Progress.MOVING

    def _covered(self, pose: Pose) -> float:
        """Distance along the heading at the start, metres."""
        assert self._origin is not None
        dx, dy = pose.x - self._origin.x, pose.y - self._origin.y
        return dx * math.cos(self._origin.yaw) + dy * math.sin(self._origin.yaw)

    def _aside(self, pose: Pose) -> float:
        """Distance from the straight line of the motion, metres, left positive."""
        assert self._origin is not None
        dx, dy = pose.x - self._origin.x, pose.y - self._origin.y
        return dy * math.cos(self._origin.yaw) - dx * math.sin(self._origin.yaw)

    def _is_blocked(self, progress: float, counts: float, now: float) -> bool:
        best, since = self._best
        if progress > best + counts:
            self._best = (progress, now)
            return False
        return now - since > self.config.blocked_after_s

    def _begin_settling(self, pose: Pose, now: float) -> Progress:
        self._settling_since = now
        self._still = (pose, now)
        return Progress.SETTLING

    def _settle(self, pose: Pose, now: float) -> Progress:
        c = self.config
        assert self._settling_since is not None and self._still is not None
        then, since = self._still
        moved = math.hypot(pose.x - then.x, pose.y - then.y) > c.still_linear
        if moved or abs(wrap(pose.yaw - then.yaw)) > c.still_angular:
            self._still = (pose, now)
        elif now - since >= c.settle_window_s:
            return self._finish(Progress.REACHED)[1]
        if now - self._settling_since > c.settle_timeout_s:
            return self._finish(Progress.REACHED)[1]
        return Progress.SETTLING

    def _finish(self, progress: Progress) -> tuple[Velocity, Progress]:
        self._motion = None
        return ZERO, progress

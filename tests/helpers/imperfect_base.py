# SPDX-License-Identifier: Apache-2.0
"""A base that is late, slips, sticks, is pushed or ignores zeros, and faulty odometry, in simulated time.

Metres, radians, seconds. Used to test calibrations and random faults; the simulator's own base is `navsim.base`.
"""

from __future__ import annotations

import enum
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from navsim.geometry import Pose2D, moved, movement, wrap_angle


@dataclass
class BaseTraits:
    """How a base responds to commands; may be changed while it runs.

    delay_s: time until a command takes effect. hold_s: how long a command stays in force. stuck: "", "forward", "turn"
    or "all". push: m/s ahead, m/s to the left, rad/s, added to the base's own motion.
    """

    delay_s: float = 0.0
    hold_s: float = 1.0
    drops_zeros: bool = False
    accel: float = 1.5
    turn_accel: float = 5.0
    linear_scale: float = 1.0
    angular_scale: float = 1.0
    deadband_linear: float = 0.0
    deadband_angular: float = 0.0
    stuck: str = ""
    push: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class HalfPlaneWall:
    """A straight wall at distance `at_m` in the direction `angle`."""

    angle: float
    at_m: float


@dataclass
class Base:
    """A point with a heading, driven by velocities."""

    traits: BaseTraits = field(default_factory=BaseTraits)
    walls: list[HalfPlaneWall] = field(default_factory=list)
    pose: Pose2D = field(default_factory=lambda: Pose2D(0.0, 0.0, 0.0))
    linear: float = 0.0
    angular: float = 0.0
    _now: float = 0.0
    _coming: deque[tuple[float, tuple[float, float]]] = field(default_factory=deque)
    _wanted: tuple[float, float] = (0.0, 0.0)
    _until: float = 0.0

    def command(self, linear: float, angular: float, now: float) -> None:
        """Record a velocity command (m/s, rad/s) published now."""
        if self.traits.drops_zeros and linear == 0 and angular == 0:
            return
        self._coming.append((now + self.traits.delay_s, (linear, angular)))

    def step(self, now: float) -> None:
        """Let time pass until now."""
        dt, self._now = now - self._now, now
        traits = self.traits
        while self._coming and self._coming[0][0] <= now:
            due, self._wanted = self._coming.popleft()
            self._until = due + traits.hold_s
        linear, angular = self._wanted if now < self._until else (0.0, 0.0)
        linear, angular = linear * traits.linear_scale, angular * traits.angular_scale
        if abs(linear) < traits.deadband_linear or traits.stuck in ("forward", "all"):
            linear = 0.0
        if abs(angular) < traits.deadband_angular or traits.stuck in ("turn", "all"):
            angular = 0.0
        self.linear += max(-traits.accel * dt, min(traits.accel * dt, linear - self.linear))
        self.angular += max(-traits.turn_accel * dt, min(traits.turn_accel * dt, angular - self.angular))
        if traits.stuck in ("forward", "all"):
            self.linear = 0.0
        if traits.stuck in ("turn", "all"):
            self.angular = 0.0
        self._move(dt)

    def _move(self, dt: float) -> None:
        ahead, aside, turn = self.traits.push
        heading = self.pose.yaw + (self.angular + turn) * dt / 2
        forward = (self.linear + ahead) * dt
        dx = forward * math.cos(heading) - aside * dt * math.sin(heading)
        dy = forward * math.sin(heading) + aside * dt * math.cos(heading)
        for wall in self.walls:
            nx, ny = math.cos(wall.angle), math.sin(wall.angle)
            over = (self.pose.x + dx) * nx + (self.pose.y + dy) * ny - wall.at_m
            inward = dx * nx + dy * ny
            if over > 0 and inward > 0:  # slides along
                back = min(over, inward)
                dx, dy = dx - back * nx, dy - back * ny
        self.pose = Pose2D(self.pose.x + dx, self.pose.y + dy, wrap_angle(self.pose.yaw + (self.angular + turn) * dt))


class OdometryFault(enum.Enum):
    """Kind of odometry fault."""

    NONE = "none"
    STOPPED = "stopped"
    FROZEN = "frozen"  # one pose with fresh stamps
    FROZEN_NOISY = "frozen, noisy"
    STUCK_STAMPS = "stuck stamps"  # true poses, but the stamp never advances
    JUMPING = "jumping"
    NAN = "nan"
    MIRRORED_YAW = "mirrored yaw"
    MIRRORED_X = "mirrored x"
    ROTATED = "rotated"  # positions in axes that are a quarter turn off
    SCALED = "scaled"  # by `scale`
    FOREIGN = "foreign"  # another child frame

    @property
    def lies(self) -> bool:
        """Whether the reported pose is wrong although it looks valid."""
        return self not in (OdometryFault.NONE, OdometryFault.STOPPED, OdometryFault.NAN)


class OdometryMessage(NamedTuple):
    """An odometry message: a pose, its stamp in seconds, frame_id and child_frame_id."""

    pose: Pose2D
    stamp: float
    frame: str
    base_frame: str


@dataclass
class Odometry:
    """Turns true poses into messages. noise_m: standard deviation of a coordinate; yaw: half as many radians."""

    rng: random.Random
    noise_m: float = 0.0002
    fault: OdometryFault = OdometryFault.NONE
    scale: float = 1.0
    _told: Pose2D | None = None
    _true: Pose2D | None = None
    _stamp: float = 0.0
    _count: int = 0

    def message(self, true: Pose2D, now: float) -> OdometryMessage | None:
        """Return the message sent now, or None."""
        self._count += 1
        fault = self.fault
        last_true, self._true = self._true or true, true
        told = self._told or true
        if fault is OdometryFault.STOPPED:
            return None
        if fault not in (OdometryFault.FROZEN, OdometryFault.FROZEN_NOISY):
            told = self._follow(told, last_true, true)
            self._told = told
        if fault is not OdometryFault.STUCK_STAMPS:
            self._stamp = now
        return OdometryMessage(self._shown(told), self._stamp, "odom", self._frame)

    @property
    def _frame(self) -> str:
        return "other_link" if self.fault is OdometryFault.FOREIGN else "base_link"

    def _follow(self, told: Pose2D, before: Pose2D, after: Pose2D) -> Pose2D:
        """Return the next reported pose: it follows the true movement, changed by the fault."""
        fault = self.fault
        ahead, aside, turned = movement(before, after)
        if fault is OdometryFault.MIRRORED_YAW:
            turned, aside = -turned, -aside
        elif fault is OdometryFault.MIRRORED_X:
            ahead = -ahead
        elif fault is OdometryFault.ROTATED:
            ahead, aside = -aside, ahead
        elif fault is OdometryFault.SCALED:
            ahead, aside, turned = ahead * self.scale, aside * self.scale, turned * self.scale
        return moved(told, ahead, aside, turned)

    def _shown(self, told: Pose2D) -> Pose2D:
        if self.fault is OdometryFault.NAN:
            return Pose2D(math.nan, math.nan, math.nan)
        if self.fault is OdometryFault.FROZEN:
            return told
        x = told.x + (2.0 if self.fault is OdometryFault.JUMPING and self._count % 2 else 0.0)
        if not self.noise_m:
            return Pose2D(x, told.y, told.yaw)
        gauss = self.rng.gauss
        return Pose2D(
            x + gauss(0.0, self.noise_m),
            told.y + gauss(0.0, self.noise_m),
            told.yaw + gauss(0.0, self.noise_m / 2),
        )

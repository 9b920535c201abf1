# SPDX-License-Identifier: Apache-2.0
"""The planar base: a disc that follows velocity commands within limits and cannot enter obstacles.

Kinematic, in plain Python (tens of microseconds per step). Like the Go2 it holds the last command for 1 s and then
stops by itself. It makes no decisions and never reads a clock: time passes only through `step`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from navsim.errors import BadRequest
from navsim.geometry import Pose2D, wrap_angle
from navsim.planner import ROBOT_RADIUS
from navsim.rooms import Room

MAX_STEP = 0.02  # seconds; longer steps are cut into pieces
CONTACT_RELEASE = 0.02  # metres off the obstacle before a new contact counts again


@dataclass(frozen=True, slots=True)
class BaseLimits:
    """Limits of the base: m/s, rad/s and their rates; `hold`: how long a command stays in force [s]."""

    forward: float = 0.8
    backward: float = 0.4
    turn: float = 1.5
    accel: float = 1.5
    turn_accel: float = 5.0
    hold: float = 1.0


class PlanarBase:
    """The robot's body in a room.

    Public: `pose`, `vx` [m/s], `wz` [rad/s], `collisions` (contact onsets), `in_contact`, `travelled` [m], `time` [s].
    """

    def __init__(
        self, room: Room, start: Pose2D, limits: BaseLimits | None = None, radius: float = ROBOT_RADIUS
    ):
        self.limits = limits or BaseLimits()
        self.radius = radius
        self._room = room
        self.pose = start
        self.vx = 0.0
        self.wz = 0.0
        self.collisions = 0
        self.travelled = 0.0
        self.time = 0.0
        self.in_contact = False
        self.stuck = ""  # "forward", "backward" or "both": directions in which it does not move
        self.push = (0.0, 0.0, 0.0)  # m/s ahead, m/s to the left, rad/s: external push
        self._wanted = (0.0, 0.0)
        self._wanted_until = 0.0
        self._safe = 0.0  # a lower bound of the free distance around the body

    def command(self, vx: float, wz: float) -> None:
        """Command a forward speed [m/s] and a turn rate [rad/s, left positive]; clipped, held `limits.hold` seconds.

        Raises BadRequest for NaN or infinity (and keeps the previous command).
        """
        if not (math.isfinite(vx) and math.isfinite(wz)):
            raise BadRequest(f"velocity command ({vx}, {wz}) is not finite; send finite numbers")
        lim = self.limits
        self._wanted = (min(max(vx, -lim.backward), lim.forward), min(max(wz, -lim.turn), lim.turn))
        self._wanted_until = self.time + lim.hold

    def step(self, dt: float) -> None:
        """Let `dt` seconds pass."""
        if not 0.0 <= dt < math.inf:
            raise BadRequest(f"time step {dt} is not usable; use a finite number of seconds, 0 or more")
        pieces = max(1, math.ceil(dt / MAX_STEP - 1e-9))
        for _ in range(pieces):
            self._advance(dt / pieces)

    def _advance(self, dt: float) -> None:
        lim = self.limits
        # A tolerance of 1 ns, because sums of float steps miss the exact second.
        want_vx, want_wz = self._wanted if self.time < self._wanted_until - 1e-9 else (0.0, 0.0)
        self.vx += min(max(want_vx - self.vx, -lim.accel * dt), lim.accel * dt)
        if self.stuck in ("forward" if self.vx > 0.0 else "backward", "both"):
            self.vx = 0.0
        self.wz += min(max(want_wz - self.wz, -lim.turn_accel * dt), lim.turn_accel * dt)
        self.time += dt
        pose, (ahead, aside, turn) = self.pose, self.push
        yaw = wrap_angle(pose.yaw + (self.wz + turn) * dt)
        heading = pose.yaw + 0.5 * (self.wz + turn) * dt
        cos, sin = math.cos(heading), math.sin(heading)
        along, across = (self.vx + ahead) * dt, aside * dt
        dx, dy = along * cos - across * sin, along * sin + across * cos
        travel = math.hypot(along, across)
        if travel < self._safe:  # clearance changes by at most the distance moved
            self._safe -= travel
            self.in_contact = self.in_contact and self._safe < CONTACT_RELEASE
        else:
            dx, dy = self._resolve(pose.x, pose.y, dx, dy)
            if dt > 0.0:
                self.vx = dx / dt * cos + dy / dt * sin - ahead
        self.travelled += math.hypot(dx, dy)
        self.pose = Pose2D(pose.x + dx, pose.y + dy, yaw)

    def _resolve(self, x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
        """Return the part of a displacement that is free: all of it, slid along the surface, or none."""
        room_left = self._room.clearance(x + dx, y + dy) - self.radius
        if room_left >= 0.0:
            self._settle(room_left, touching=False)
            return dx, dy
        shape = min(self._room.obstacles, key=lambda s: s.distance(x + dx, y + dy))
        nx, ny = shape.nearest(x, y)
        nx, ny = x - nx, y - ny
        span = math.hypot(nx, ny)
        if span > 1e-9:
            inward = min((dx * nx + dy * ny) / span, 0.0)
            sx, sy = dx - inward * nx / span, dy - inward * ny / span
            room_left = self._room.clearance(x + sx, y + sy) - self.radius
            if room_left >= 0.0:
                self._settle(room_left, touching=True)
                return sx, sy
        self._settle(max(self._room.clearance(x, y) - self.radius, 0.0), touching=True)
        return 0.0, 0.0

    def _settle(self, room_left: float, touching: bool) -> None:
        if touching:
            if not self.in_contact:
                self.collisions += 1
            self.in_contact = True
        elif room_left > CONTACT_RELEASE:
            self.in_contact = False
        self._safe = room_left

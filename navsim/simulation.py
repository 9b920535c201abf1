# SPDX-License-Identifier: Apache-2.0
"""One running simulation without ROS: the current episode and the base in it.

Not thread-safe: one thread advances it, others receive immutable `Snapshot`s.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from navsim.base import BaseLimits, PlanarBase
from navsim.episodes import Episode, make_episode
from navsim.errors import BadRequest
from navsim.geometry import Pose2D

MAX_REQUEST_BYTES = 4096


class ResetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for an episode."""

    seed: int
    split: str = "train"
    absent: bool = False


class State(msgspec.Struct, frozen=True):
    """What `~/state` reports, as JSON: metres, radians, `time` in simulated seconds since the start."""

    episode_seed: int
    split: str
    absent: bool
    x: float
    y: float
    yaw: float
    vx: float
    wz: float
    collisions: int
    travelled: float
    time: float
    ready: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The simulation at one moment; `visit` counts the resets, so that a late picture of an old room is recognised."""

    visit: int
    episode: Episode
    pose: Pose2D
    vx: float
    wz: float
    collisions: int
    travelled: float
    time: float


def parse_reset(text: str) -> ResetRequest:
    """Parse a reset message. Raises BadRequest with the reason."""
    if len(text) > MAX_REQUEST_BYTES:
        raise BadRequest(f"reset message of {len(text)} characters; send at most {MAX_REQUEST_BYTES}")
    try:
        return msgspec.json.decode(text, type=ResetRequest)
    except msgspec.MsgspecError as error:
        raise BadRequest(f'reset message not understood ({error}); send for example {{"seed": 3}}') from error


class Simulation:
    """A running episode."""

    def __init__(self, request: ResetRequest, limits: BaseLimits | None = None):
        self._limits = limits or BaseLimits()
        self._time = 0.0
        self.visit = 0  # resets so far
        self._enter(request)

    def _enter(self, request: ResetRequest) -> None:
        episode = make_episode(request.seed, request.split, request.absent)
        self.episode = episode
        self.base = PlanarBase(episode.room, episode.start, self._limits)

    def reset(self, request: ResetRequest) -> None:
        """Switch to another episode; time continues. Raises BadRequest, and then keeps the current one."""
        self._enter(request)
        self.visit += 1

    def advance(self, dt: float) -> None:
        """Let simulated time pass [s]."""
        self.base.step(dt)
        self._time += dt

    def snapshot(self) -> Snapshot:
        """Return the present state."""
        base = self.base
        return Snapshot(
            self.visit,
            self.episode,
            base.pose,
            base.vx,
            base.wz,
            base.collisions,
            base.travelled,
            self._time,
        )


def state_of(snapshot: Snapshot, ready: bool) -> State:
    """Return the public part of a snapshot, which does not reveal the target's position."""
    episode, pose = snapshot.episode, snapshot.pose
    return State(
        episode_seed=episode.seed,
        split=episode.split,
        absent=episode.absent,
        x=pose.x,
        y=pose.y,
        yaw=pose.yaw,
        vx=snapshot.vx,
        wz=snapshot.wz,
        collisions=snapshot.collisions,
        travelled=snapshot.travelled,
        time=snapshot.time,
        ready=ready,
    )

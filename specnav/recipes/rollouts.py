# SPDX-License-Identifier: Apache-2.0
"""Closed loops of many episodes at once, without ROS: render, answer, decide, move, score.

A *speaker* answers all running episodes of a round in one batch; the oracle is one speaker, a model another. Answers
pass through the robot's own parser and exploration policy; the body is the simulator's. Nothing is trained here.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.exploring.floor_reading import CameraGeometry, FloorPicture, RobotBody
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.language.actions import Action, find_action, sees_target
from specnav.recipes.frames import LOOK_AHEAD, SEEN_PIXELS, as_camera_sends, free_length, label_object
from specnav.recipes.oracle import VisibleObject, answer_seen, answer_unseen

if TYPE_CHECKING:
    from navsim.base import PlanarBase
    from navsim.episodes import Episode
    from navsim.geometry import Pose2D
    from navsim.scoring import Score
    from navsim.world import World

MAX_DECISIONS = 50
JPEG_QUALITY = 90
TURN_ERROR = math.radians(1.5)
MOVE_ERROR = 0.015
SPARE_M = 0.04
"""Distance that the robot keeps from objects beside it, in addition to its radius."""
_SPEED = 0.5
_DT = 0.02


@dataclass
class EpisodeRollout:
    """The state of one running episode, with all its answers."""

    episode: Episode
    base: PlanarBase
    policy: ExplorationPolicy
    rng: random.Random
    answers: list[str] = field(default_factory=list)
    frames: list[np.ndarray] = field(default_factory=list)
    explored: int = 0
    unparsed: int = 0
    contact: bool = False
    said_absent: bool = False
    stopped: bool = False

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.stopped or len(self.answers) >= MAX_DECISIONS


class Speaker(Protocol):
    """Answers all running episodes of a round."""

    def answer(self, runs: Sequence[EpisodeRollout], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """One answer per run. frames: the camera's pictures, uint8 [140, 224, 3]."""


class OracleSpeaker:
    """Answers from the simulator's ground truth: an upper bound, and a test of the rules."""

    def answer(self, runs: Sequence[EpisodeRollout], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """See Speaker."""
        return [oracle_answer(world, run.episode, run.base.pose) for run in runs]


def oracle_answer(world: World, episode: Episode, pose: Pose2D) -> str:
    """The answer to the episode's instruction at a pose, from the simulator's ground truth."""
    room, target = episode.room, episode.target
    ahead = free_length(room.obstacles, pose.x, pose.y, pose.yaw, LOOK_AHEAD)
    if target is None:
        return answer_unseen(episode.target_name, ahead)
    world.load(room)
    _, _, pixels, bearing, distance, blocked, way = label_object(
        room, pose, room.objects.index(target), world.segment(pose)
    )
    if pixels < SEEN_PIXELS:
        return answer_unseen(episode.target_name, ahead)
    return answer_seen(episode.target_name, VisibleObject(bearing, distance, ahead, blocked, way))


@dataclass(frozen=True)
class RolloutResult:
    """The results of a set of episodes."""

    runs: tuple[EpisodeRollout, ...]
    scores: tuple[Score, ...]

    def summary(self) -> dict[str, float]:
        """Shares and means over the episodes."""
        n = len(self.scores)
        decisions = sum(len(run.answers) for run in self.runs)
        return {
            "episodes": n,
            "success": sum(score.success for score in self.scores) / n,
            "spl": sum(score.spl for score in self.scores) / n,
            "collisions": sum(score.collisions for score in self.scores) / n,
            "decisions": decisions / n,
            "explored": sum(run.explored for run in self.runs) / max(decisions, 1),
            "unparsed": sum(run.unparsed for run in self.runs),
        }

    def reasons(self) -> Counter[str]:
        """Counts of the reasons for which episodes ended."""
        return Counter(score.reason for score in self.scores)


def roll_out(
    world: World,
    speaker: Speaker,
    episodes: Sequence[Episode],
    policy: str,
    keep_frames: int = 0,
) -> RolloutResult:
    """Run all episodes to their ends, round by round. keep_frames: frames to keep per run, for later measurements."""
    from navsim.base import BaseLimits, PlanarBase
    from navsim.scoring import score_episode

    limits, body = BaseLimits(accel=100.0, turn_accel=100.0), simulated_body()
    runs = [
        EpisodeRollout(
            e,
            PlanarBase(e.room, e.start, limits),
            ExplorationPolicy(policy),
            random.Random(f"roll/0/{e.seed}"),
        )
        for e in episodes
    ]
    while active := [run for run in runs if not run.over]:
        frames = []
        for run in active:
            world.load(run.episode.room)
            frames.append(as_camera_sends(world.render(run.base.pose), JPEG_QUALITY))
        for run, frame, answer in zip(active, frames, speaker.answer(active, frames, world), strict=True):
            if len(run.frames) < keep_frames:
                run.frames.append(frame)
            _carry_out(run, answer, FloorPicture(frame, body))
    scores = tuple(
        score_episode(
            run.episode,
            run.base.pose,
            stopped=run.stopped,
            path_m=run.base.travelled,
            collisions=run.base.collisions,
            said_absent=run.said_absent,
        )
        for run in runs
    )
    return RolloutResult(tuple(runs), scores)


def simulated_body() -> RobotBody:
    """The simulator's camera and robot, as in config/sim.yaml."""
    from navsim.planner import ROBOT_RADIUS
    from navsim.visibility import CAMERA_HFOV, EYE_HEIGHT

    return RobotBody(CameraGeometry(EYE_HEIGHT, CAMERA_HFOV), ROBOT_RADIUS + SPARE_M)


def _carry_out(run: EpisodeRollout, answer: str, look: FloorPicture) -> None:
    run.answers.append(answer)
    action = find_action(answer)
    run.said_absent |= sees_target(answer) is False
    if action is None:
        run.unparsed += 1
        return
    place = Pose(run.base.pose.x, run.base.pose.y, run.base.pose.yaw)
    move = run.policy.decide(Observation.from_answer(answer, action, run.contact, place, look))
    run.explored += move.source is ActionSource.EXPLORATION
    run.contact = False
    if move.action.is_stop:
        run.stopped = True
    else:
        run.contact = drive(run.base, move.action, run.rng)


def drive(base: PlanarBase, action: Action, rng: random.Random) -> bool:
    """Move the body, with a small execution error; returns whether it touched something."""
    before = base.collisions
    if action.is_turn:
        goal = action.angle_rad + rng.gauss(0.0, TURN_ERROR)
        steps = max(1, round(abs(goal) / (1.0 * _DT)))
        for _ in range(steps):
            base.command(0.0, goal / (steps * _DT))
            base.step(_DT)
        base.command(0.0, 0.0)
        base.step(_DT)
        return base.collisions > before
    wanted = max(abs(action.distance_m) + rng.gauss(0.0, MOVE_ERROR), 0.02)
    blocked = False
    for _ in range(round(wanted / (_SPEED * _DT))):
        gone = base.travelled
        base.command(_SPEED, 0.0)
        base.step(_DT)
        # In contact and no longer moving.
        blocked = base.in_contact and base.travelled - gone < 0.5 * _SPEED * _DT
        if blocked or base.collisions > before:
            break
    base.command(0.0, 0.0)
    base.step(_DT)
    return blocked or base.collisions > before

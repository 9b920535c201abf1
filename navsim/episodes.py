# SPDX-License-Identifier: Apache-2.0
"""Episodes: a seed and a split determine a room, a start pose and an instruction.

Splits never share a room (the split is part of the seed), and held-out pairs of kind and colour never stand in a
training room. An *absent* episode asks for an object that is missing although its look-alikes are present.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from navsim.errors import BadRequest, RoomError
from navsim.geometry import Pose2D, bearing_to
from navsim.kinds import ALL_PAIRS, HELD_OUT, TRAIN_PAIRS
from navsim.layout import furnish, wanted_pairs
from navsim.planner import ROBOT_RADIUS, grid_of, shortest_path_length
from navsim.rooms import Room, SceneObject
from navsim.visibility import line_of_sight

SPLITS = ("train", "heldout")
# share of attempts to find a start without line of sight to the target, whatever the heading; most succeed
HIDDEN_STARTS = 0.10
SIGHT_RANGE = 5.5  # metres
IN_SIGHT = 0.6  # share of the target that must be visible
MIN_START_DISTANCE = 1.3
AHEAD_RAD, AHEAD_M = 0.2, 1.8
START_MARGIN = 0.15
HELD_OUT_TARGETS = 0.5  # share of held-out episodes whose target is a held-out pair
_STREAM = "navsim-1"  # change it when the generation of rooms changes


@dataclass(frozen=True)
class Episode:
    """One task. `target` is None if the object that the instruction names is not in the room."""

    seed: int
    split: str
    room: Room
    start: Pose2D
    target: SceneObject | None
    target_name: str
    instruction: str

    @property
    def absent(self) -> bool:
        """Whether the named object is missing."""
        return self.target is None

    @property
    def target_is_held_out(self) -> bool:
        """Whether the named pair was kept out of every training room."""
        colour, kind = self.target_name.split(" ", 1)
        return (kind, colour) in HELD_OUT

    @property
    def target_is_ahead(self) -> bool:
        """Whether the robot faces its target at the start: within `AHEAD_RAD`, at least `AHEAD_M` away, in sight."""
        if self.target is None:
            return False
        start, target = self.start, self.target
        off, metres = (
            bearing_to(start, target.x, target.y),
            math.hypot(target.x - start.x, target.y - start.y),
        )
        seen = line_of_sight(self.room, start.x, start.y, target)
        return abs(off) < AHEAD_RAD and metres >= AHEAD_M and seen >= IN_SIGHT


def make_episode(seed: int, split: str = "train", absent: bool = False) -> Episode:
    """Return the episode of a seed. Raises BadRequest for an unknown split or a negative seed."""
    if split not in SPLITS:
        raise BadRequest(f'unknown split "{split}"; use one of {", ".join(SPLITS)}')
    if seed < 0:
        raise BadRequest(f"seed is {seed}; use 0 or more")
    rng = random.Random(f"{_STREAM}/{split}/{seed}/{'absent' if absent else 'present'}")
    allowed = TRAIN_PAIRS if split == "train" else ALL_PAIRS
    for _ in range(50):
        if split == "heldout" and rng.random() < HELD_OUT_TARGETS:
            pair = rng.choice(sorted(HELD_OUT))
        else:
            pair = rng.choice(TRAIN_PAIRS)
        others = wanted_pairs(rng, pair, allowed, rng.randint(5, 8))
        pairs = others if absent else [pair, *others]
        rng.shuffle(pairs)
        room = furnish(rng, seed, split, pairs)
        name = f"{pair[1]} {pair[0]}"
        target = room.find(name)
        start = _start(rng, room, target)
        if start is not None:
            return Episode(seed, split, room, start, target, name, f"find the {name}")
    raise RoomError(f"no start found for episode {seed} ({split}); choose another seed")


def _start(rng: random.Random, room: Room, target: SceneObject | None) -> Pose2D | None:
    """Return a free start from which the target can be reached, nearly always with it in sight; None if not found."""
    hidden = rng.random() < HIDDEN_STARTS
    for _ in range(60):
        pose = random_free_pose(rng, room)
        if pose is None:
            return None
        if target is None:
            return pose
        if target.distance_to_surface(pose) < MIN_START_DISTANCE:
            continue
        sight = line_of_sight(room, pose.x, pose.y, target)
        if hidden and sight > 0.0:
            continue
        if not hidden and (
            sight < IN_SIGHT or math.hypot(pose.x - target.x, pose.y - target.y) > SIGHT_RANGE
        ):
            continue
        if math.isfinite(shortest_path_length(room, pose, target)):
            return pose
    return None


def random_free_pose(rng: random.Random, room: Room) -> Pose2D | None:
    """Return a random pose with a small margin on the largest connected free floor, or None."""
    cells = grid_of(room).connected_cells
    for _ in range(200):
        x, y = cells[rng.randrange(len(cells))]
        if room.clearance(x, y) >= ROBOT_RADIUS + START_MARGIN:
            return Pose2D(x, y, rng.uniform(-math.pi, math.pi))
    return None

# SPDX-License-Identifier: Apache-2.0
"""Rendered frames with structured labels: the content of every patch, and the oracle's facts about every object.

Frames are made in shards, each from its own seed, so that a resumed run continues with the next missing shard and
several processes can share the work. Only training rooms are used: held-out pairs of kind and colour never appear.
"""

from __future__ import annotations

import math
import multiprocessing
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specdec.whole_files import replacing
from specnav.recipes import architecture as arch
from specnav.recipes.crew import shared_out
from specnav.recipes.errors import TrainingError
from specnav.recipes.oracle import VisibleObject
from specnav.recipes.tower import patch_order

if TYPE_CHECKING:
    from navsim.geometry import Pose2D, Shape
    from navsim.rooms import Room
    from navsim.world import World

Pairs = tuple[tuple[str, str], ...]
SHARD_FRAMES = 1000
FRAMES_A_ROOM = 14
MAX_OBJECTS = 10
MIN_PATCH_PIXELS = 8  # a patch belongs to an object from this many of its 196 pixels on
SEEN_PIXELS = 45  # an object counts as seen from this many pixels on
UNSEEN_PIXELS = 10  # below this many it counts as not seen; between the two it is never asked for
BODY = 0.27  # radius kept free around the robot's path, metres (its own is 0.22)
LOOK_AHEAD = 1.2  # metres
COLUMN_RANGE = 6.0  # metres
FOCAL = arch.IMAGE_WIDTH / 2  # pixels, at 90 degrees horizontal field of view

OBJECT = np.dtype(
    [
        ("kind", "i1"),
        ("colour", "i1"),
        ("pixels", "i4"),
        ("bearing", "f4"),
        ("distance", "f4"),
        ("blocked", "?"),
        ("way", "f4"),
    ]
)
"""One object of a frame: indices into navsim's KINDS and COLOURS (-1: none), degrees, metres (see
`oracle.VisibleObject`).
"""
FRAME = np.dtype(
    [
        ("objects", OBJECT, (MAX_OBJECTS,)),
        ("owner", "i1", (arch.GRID_H * arch.GRID_W,)),  # object of each patch in merge order, -1: none
        (
            "columns",
            "f4",
            (arch.GRID_W,),
        ),  # plan distance to the nearest obstacle over each column of patches
        ("ahead_free", "f4"),
        ("room", "i4"),
        ("pose", "f4", (3,)),
    ]
)


@dataclass(frozen=True)
class FrameData:
    """Training data of the vision pair: the first `count` frames of a run's folder, without the last `held_back`."""

    work: Path
    count: int
    held_back: int = 0

    @property
    def frames(self) -> Path:
        """The folder of the shards."""
        return self.work / "frames"

    @property
    def features(self) -> Path:
        """The file of their cached image tokens."""
        return self.work / "features.npy"

    @property
    def tower(self) -> Path:
        """The weights of the tower that made these features."""
        return self.work / "features.tower.pt"


@dataclass(frozen=True)
class FrameSet:
    """All shards of a folder, memory-mapped one by one; frames uint8 [n, 140, 224, 3], labels FRAME [n]."""

    frames: tuple[NDArray[np.uint8], ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def pick(self, indices: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Frames of the given indices, uint8 [k, 140, 224, 3]."""
        return np.stack([self.frames[i // SHARD_FRAMES][i % SHARD_FRAMES] for i in indices])


def shard_files(folder: Path, shard: int) -> tuple[Path, Path]:
    """The files of a shard: frames and labels. The labels are written last, so they mark a complete shard."""
    return folder / f"frames-{shard:04d}.npy", folder / f"labels-{shard:04d}.npy"


def load_frames(folder: Path, count: int) -> FrameSet:
    """Load the first `count` frames (a multiple of the shard size). Raises TrainingError if shards are missing."""
    frames, labels = [], []
    for shard in range(count // SHARD_FRAMES):
        frame_file, label_file = shard_files(folder, shard)
        if not label_file.exists():
            raise TrainingError(
                f"{folder} lacks shard {shard}: run the data stage again with the same folder"
            )
        frames.append(np.load(frame_file, mmap_mode="r"))
        labels.append(np.load(label_file))
    return FrameSet(tuple(frames), np.concatenate(labels))


def make_shard(world: World, folder: Path, seed: int, shard: int, pairs: Pairs | None = None) -> None:
    """Render one shard and write it. pairs: see `random_room`."""
    rng = random.Random(f"frames-1/{seed}/{shard}")
    frames = np.empty((SHARD_FRAMES, arch.IMAGE_HEIGHT, arch.IMAGE_WIDTH, 3), np.uint8)
    labels = np.zeros(SHARD_FRAMES, FRAME)
    done = 0
    while done < SHARD_FRAMES:
        room = random_room(rng, shard * SHARD_FRAMES + done, pairs)
        world.load(room)
        for pose in random_poses(rng, room, min(FRAMES_A_ROOM, SHARD_FRAMES - done)):
            picture, segments = world.frame(pose)
            frames[done] = as_camera_sends(picture, rng.randint(80, 95))
            labels[done] = label_frame(room, pose, segments)
            done += 1
    frame_file, label_file = shard_files(folder, shard)
    for file, array in ((frame_file, frames), (label_file, labels)):
        with replacing(file) as partial, partial.open("wb") as stream:
            np.save(stream, array)


def make_frames(
    data: FrameData,
    seed: int,
    workers: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    pairs: Pairs | None = None,
) -> None:
    """Render the missing frames; `progress(done, total)` is called after every shard.

    pairs: the (kind, colour) pairs that may occur in the rooms; None: all training pairs.
    """
    data.frames.mkdir(parents=True, exist_ok=True)
    shards = range(data.count // SHARD_FRAMES)
    missing = [shard for shard in shards if not shard_files(data.frames, shard)[1].exists()]
    done = len(shards) - len(missing)
    progress(done * SHARD_FRAMES, data.count)
    context = multiprocessing.get_context("spawn")
    for _ in shared_out(context, renderer, (data, seed, pairs), missing, workers):
        done += 1
        progress(done * SHARD_FRAMES, data.count)


def renderer(data: FrameData, seed: int, pairs: Pairs | None) -> Callable[[int], None]:
    """A function that renders a shard, given its number."""
    from navsim.world import World

    world = World()
    return lambda shard: make_shard(world, data.frames, seed, shard, pairs)


def camera_jpeg(picture: NDArray[np.uint8], quality: int) -> bytes:
    """Encode uint8 RGB [height, width, 3] as the camera does."""
    import cv2

    return cv2.imencode(".jpg", picture[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def as_camera_sends(picture: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """The picture after JPEG compression, as the robot's software receives it."""
    import cv2

    data = np.frombuffer(camera_jpeg(picture, quality), np.uint8)
    received = cv2.imdecode(data, cv2.IMREAD_COLOR)
    assert received is not None  # it was encoded just now
    return np.asarray(received[:, :, ::-1], np.uint8)


def random_room(rng: random.Random, seed: int, pairs: Pairs | None = None) -> Room:
    """A training room with similar objects. pairs: allowed (kind, colour) pairs; None: all training pairs."""
    from navsim.kinds import TRAIN_PAIRS
    from navsim.layout import furnish, wanted_pairs

    allowed = TRAIN_PAIRS if pairs is None else pairs
    pair = rng.choice(allowed)
    chosen = [pair, *wanted_pairs(rng, pair, allowed, rng.randint(5, 8))]
    rng.shuffle(chosen)
    return furnish(rng, seed, "train", chosen)


def random_poses(rng: random.Random, room: Room, count: int) -> list[Pose2D]:
    """Free poses: 40 % close to and facing an object, 35 % anywhere but facing one, 25 % anywhere in any direction."""
    from navsim.geometry import Pose2D

    poses: list[Pose2D] = []
    while len(poses) < count:
        thing = rng.choice(room.objects)
        form = rng.random()
        if form < 0.4:
            angle = rng.uniform(-math.pi, math.pi)
            reach = thing.shape.reach + math.exp(rng.uniform(math.log(0.3), math.log(1.6)))
            x, y = thing.x + reach * math.cos(angle), thing.y + reach * math.sin(angle)
        else:
            area = rng.choice(room.areas)
            x, y = rng.uniform(area.x0, area.x1), rng.uniform(area.y0, area.y1)
        if not room.contains(x, y) or room.clearance(x, y) < 0.222:
            continue
        if form < 0.75:
            yaw = math.atan2(thing.y - y, thing.x - x) + math.radians(rng.uniform(-46, 46))
        else:
            yaw = rng.uniform(-math.pi, math.pi)
        poses.append(Pose2D(x, y, yaw))
    return poses


def label_frame(room: Room, pose: Pose2D, segments: NDArray[np.int32]) -> NDArray[np.void]:
    """Everything the oracle knows about one frame; `segments` is `World.segment` of the pose."""
    label = np.zeros((), FRAME)
    label["objects"]["kind"] = -1
    label["objects"]["colour"] = -1
    label["owner"] = patch_owners(segments, len(room.objects))
    label["columns"] = column_distances(room, pose)
    label["ahead_free"] = free_length(room.obstacles, pose.x, pose.y, pose.yaw, LOOK_AHEAD)
    label["room"] = room.seed
    label["pose"] = (pose.x, pose.y, pose.yaw)
    for index in range(len(room.objects)):
        label["objects"][index] = label_object(room, pose, index, segments)
    return label


def label_object(room: Room, pose: Pose2D, index: int, segments: NDArray[np.int32]) -> tuple:
    """One OBJECT record."""
    from navsim.kinds import COLOURS, KINDS
    from navsim.planner import next_waypoint

    thing = room.objects[index]
    columns = np.nonzero(segments == index)[1]
    kind = next(i for i, known in enumerate(KINDS) if known.name == thing.kind)
    colour = list(COLOURS).index(thing.colour)
    distance = thing.distance_to_surface(pose)
    if len(columns) < SEEN_PIXELS:
        return kind, colour, len(columns), 0.0, distance, False, math.nan
    bearing = math.atan((FOCAL - 0.5 - float(columns.mean())) / FOCAL)
    others = [shape for shape in room.obstacles if shape is not thing.shape]
    wanted = min(distance - 0.5, LOOK_AHEAD)
    blocked = wanted > 0.05 and free_length(others, pose.x, pose.y, pose.yaw + bearing, wanted) < wanted
    way = math.nan
    if blocked and (point := next_waypoint(room, pose, thing)) is not None:
        turn = math.atan2(point[1] - pose.y, point[0] - pose.x) - pose.yaw
        way = math.degrees(math.atan2(math.sin(turn), math.cos(turn)))
    return kind, colour, len(columns), math.degrees(bearing), distance, blocked, way


def patch_owners(segments: NDArray[np.int32], objects: int) -> NDArray[np.int8]:
    """Object of each of the 160 patches in merge order: the one with most pixels, -1 below MIN_PATCH_PIXELS."""
    blocks = segments.reshape(arch.GRID_H, arch.PATCH, arch.GRID_W, arch.PATCH)
    counts = np.stack([(blocks == index).sum((1, 3)).reshape(-1) for index in range(objects)])
    owner = np.where(counts.max(0) >= MIN_PATCH_PIXELS, counts.argmax(0), -1)
    return owner[patch_order().numpy()].astype(np.int8)


def free_length(
    shapes: list[Shape] | tuple[Shape, ...], x: float, y: float, angle: float, limit: float
) -> float:
    """How far a disc of radius BODY can move in a direction before it touches a shape [m], at most `limit`."""
    ux, uy = math.cos(angle), math.sin(angle)
    near = [s for s in shapes if s.distance(x, y) < BODY + limit]
    gone = 0.0
    for _ in range(40):
        gap = min((s.distance(x + gone * ux, y + gone * uy) for s in near), default=math.inf) - BODY
        # Starting slightly too close does not block, as long as moving on increases the distance.
        if gap < 0.004 and not (gone < 0.1 and _leaving(near, x + gone * ux, y + gone * uy, ux, uy)):
            return gone
        gone += max(gap, 0.02)
        if gone >= limit:
            return limit
    return gone


def _leaving(shapes: list[Shape], x: float, y: float, ux: float, uy: float) -> bool:
    close = [s for s in shapes if s.distance(x, y) < BODY + 0.004]
    return all(s.distance(x + 0.03 * ux, y + 0.03 * uy) >= s.distance(x, y) for s in close)


def column_distances(room: Room, pose: Pose2D) -> NDArray[np.float32]:
    """Plan distance from the robot to the first obstacle over the middle of each column of patches [m]."""
    out = np.empty(arch.GRID_W, np.float32)
    for column in range(arch.GRID_W):
        offset = math.atan((FOCAL - arch.PATCH * (column + 0.5)) / FOCAL)
        ux, uy = math.cos(pose.yaw + offset), math.sin(pose.yaw + offset)
        out[column] = min(min(s.ray(pose.x, pose.y, ux, uy) for s in room.obstacles), COLUMN_RANGE)
    return out


def view_of(label: np.void, index: int) -> VisibleObject:
    """The oracle's view of one object of a frame."""
    thing = label["objects"][index]
    return VisibleObject(
        float(thing["bearing"]),
        float(thing["distance"]),
        float(label["ahead_free"]),
        bool(thing["blocked"]),
        float(thing["way"]),
    )

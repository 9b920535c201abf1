"""Labels: what they say of a frame is what the simulator shows there."""

import math
import random

import numpy as np
import pytest

pytest.importorskip("navsim.world")

from navsim.episodes import make_episode
from navsim.geometry import Pose2D
from navsim.world import World
from specnav.recipes.errors import TrainingError
from specnav.recipes.frames import (
    FRAME,
    SEEN_PIXELS,
    free_length,
    label_frame,
    load_frames,
    patch_owners,
    random_poses,
    random_room,
    shard_files,
    view_of,
)
from specnav.recipes.oracle import stated_bearing
from specnav.recipes.tower import patch_order, patchify
from specnav.recipes.vision_stage import dense_labels, flip_order


@pytest.fixture(scope="module")
def world():
    with World() as made:
        yield made


def scene(world, seed=3):
    """An episode's room, seen straight towards its target."""
    episode = make_episode(seed, "train")
    world.load(episode.room)
    start, target = episode.start, episode.target
    pose = Pose2D(start.x, start.y, math.atan2(target.y - start.y, target.x - start.x))
    return episode, pose, world.segment(pose)


def test_an_objects_pixels_bearing_and_distance_are_those_of_the_segmentation(world):
    episode, pose, segments = scene(world)
    index = episode.room.objects.index(episode.target)
    label = label_frame(episode.room, pose, segments)
    thing = label["objects"][index]
    assert thing["pixels"] == (segments == index).sum() >= SEEN_PIXELS
    assert abs(stated_bearing(view_of(label, index).bearing)) <= 10
    assert thing["distance"] == pytest.approx(episode.target.distance_to_surface(pose), abs=1e-5)


def test_a_patch_belongs_to_the_object_that_fills_it(world):
    _, _, segments = scene(world)
    owners = patch_owners(segments, 10)
    for place, patch in enumerate(patch_order().tolist()):
        row, column = divmod(patch, 16)
        block = segments[row * 14 : row * 14 + 14, column * 14 : column * 14 + 14]
        if (block == block[0, 0]).all():
            assert owners[place] == block[0, 0]


def test_mirroring_a_frame_moves_each_patch_to_its_mirrored_place():
    frame = np.random.default_rng(0).integers(0, 255, (1, 140, 224, 3), dtype=np.uint8)
    import torch

    plain, mirrored = (patchify(torch.from_numpy(f.copy())) for f in (frame, frame[:, :, ::-1]))
    columns_reversed = plain[:, flip_order()].view(160, 3, 14, 14).flip(3).reshape(160, -1)
    assert torch.equal(mirrored[0], columns_reversed)


def test_training_rooms_never_hold_a_held_out_pair():
    from navsim.kinds import HELD_OUT

    rng = random.Random(1)
    pairs = {(o.kind, o.colour) for i in range(40) for o in random_room(rng, i).objects}
    assert not pairs & HELD_OUT


def test_poses_are_free_and_the_free_length_ends_at_the_first_obstacle():
    rng = random.Random(2)
    room = random_room(rng, 0)
    for pose in random_poses(rng, room, 10):
        free = free_length(room.obstacles, pose.x, pose.y, pose.yaw, 1.2)
        for share in (0.3, 0.6, 0.95):
            x, y = pose.x + share * free * math.cos(pose.yaw), pose.y + share * free * math.sin(pose.yaw)
            assert room.clearance(x, y) > 0.2


def test_dense_labels_follow_the_owner_of_each_patch():
    label = np.zeros(1, FRAME)
    label["owner"] = -1
    label["owner"][0, 5] = 0
    label["objects"][0, 0] = (2, 3, 100, 45.0, 1.0, False, math.nan)
    dense = dense_labels(label)
    assert (dense.kind[0, 5], dense.colour[0, 5], dense.bearing[0, 5]) == (2, 3, 1.0)
    assert (dense.kind[0, 4], dense.colour[0, 4]) == (8, 9)


def test_a_missing_shard_is_told_in_one_line(tmp_path):
    with pytest.raises(TrainingError, match="lacks shard 0"):
        load_frames(tmp_path, 1000)
    assert shard_files(tmp_path, 7)[1].name == "labels-0007.npy"

"""Rendering: what is in sight has pixels of its own, rooms change without a new model, errors are clear."""

import math

import numpy as np
import pytest

from navsim.episodes import make_episode
from navsim.errors import BadRequest, NoDisplay, RoomError
from navsim.geometry import Pose2D, bearing_to
from navsim.headless import choose_backend
from navsim.kinds import COLOURS
from navsim.rooms import Area, Room, RoomAppearance, SceneObject, Wall
from navsim.visibility import line_of_sight
from navsim.world import World


@pytest.fixture(scope="module")
def world():
    with World() as made:
        yield made


def empty_room(*objects: SceneObject) -> Room:
    corners = ((0.0, 0.0), (6.0, 0.0), (6.0, 4.0), (0.0, 4.0))
    walls = tuple(Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4))
    return Room(0, "train", (Area(0.0, 0.0, 6.0, 4.0),), walls, (), objects, (), RoomAppearance())


def towards(episode):
    start, target = episode.start, episode.target
    return Pose2D(start.x, start.y, start.yaw + bearing_to(start, target.x, target.y))


@pytest.mark.slow
def test_a_visible_target_has_pixels_and_its_colour(world):
    for seed in range(8):
        episode = make_episode(seed, "heldout")
        if line_of_sight(episode.room, episode.start.x, episode.start.y, episode.target) < 1.0:
            continue
        world.load(episode.room)
        rgb, labels = world.frame(towards(episode))
        assert rgb.shape == (140, 224, 3)
        assert rgb.dtype == np.uint8
        assert labels.shape == (140, 224)
        assert labels.max() < len(episode.room.objects)
        assert (labels == episode.room.objects.index(episode.target)).sum() > 15


def test_looking_away_shows_no_target(world):
    episode = make_episode(1)
    world.load(episode.room)
    pose = towards(episode)
    labels = world.segment(Pose2D(pose.x, pose.y, pose.yaw + math.pi))
    assert not (labels == episode.room.objects.index(episode.target)).any()


def test_left_in_the_room_is_left_in_the_picture(world):
    world.load(empty_room(SceneObject("ball", "red", 3.0, 3.0, 0.0)))
    columns = np.nonzero(world.segment(Pose2D(1.0, 2.0, 0.0)) == 0)[1]
    assert columns.max() < 112
    # A bearing of 26.6 degrees in a view 90 degrees wide: tan(26.6) = 0.5 of half the width left of the middle.
    assert columns.mean() == pytest.approx(112 - 56, abs=3)


@pytest.mark.parametrize("colour", list(COLOURS))
def test_every_colour_is_nearest_to_itself_in_a_picture(world, colour):
    def mean_hue(name: str) -> np.ndarray:
        world.load(empty_room(SceneObject("box", name, 3.0, 2.0, 0.4)))
        rgb, labels = world.frame(Pose2D(1.0, 2.0, 0.0))
        return rgb[labels == 0].mean(axis=0) / 255.0

    seen = mean_hue(colour)
    gaps = {name: np.linalg.norm(seen - np.array(value) * 0.8) for name, value in COLOURS.items()}
    assert min(gaps, key=gaps.__getitem__) == colour


def test_a_new_room_leaves_nothing_of_the_old_one(world):
    pose = Pose2D(1.0, 2.0, 0.0)
    world.load(empty_room())
    empty = world.render(pose)
    world.load(empty_room(SceneObject("chair", "red", 3.0, 2.0, 0.0)))
    assert (world.render(pose) != empty).any()
    world.load(empty_room())
    assert (world.render(pose) == empty).all()
    assert (world.segment(pose) == -1).all()


@pytest.mark.slow
def test_too_many_of_a_kind_and_no_room_are_refused():
    with World(64, 40) as small:
        with pytest.raises(BadRequest, match="load"):
            small.render(Pose2D(0.0, 0.0, 0.0))
        crowd = tuple(SceneObject("ball", "red", 1.0 + i, 2.0, 0.0) for i in range(5))
        with pytest.raises(RoomError, match="ball"):
            small.load(empty_room(*crowd))


def test_the_back_end_is_egl_then_osmesa_then_an_apt_line():
    assert choose_backend(lambda name: "libEGL.so.1" if name == "EGL" else None) == "egl"
    assert choose_backend(lambda name: "libOSMesa.so.8" if name == "OSMesa" else None) == "osmesa"
    with pytest.raises(NoDisplay, match="apt-get install"):
        choose_backend(lambda name: None)

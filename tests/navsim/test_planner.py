"""Planned ways are free of collisions, no shorter than a straight line, and lead to a place where stopping counts."""

import itertools
import math

import pytest

from navsim.episodes import make_episode
from navsim.geometry import Pose2D
from navsim.planner import ROBOT_RADIUS, next_waypoint, path_length, plan, shortest_path_length
from navsim.rooms import Area, Room, RoomAppearance, SceneObject, Wall
from navsim.scoring import STOP_DISTANCE


@pytest.fixture(scope="module")
def episodes():
    return [make_episode(seed, split) for split in ("train", "heldout") for seed in range(30)]


def samples(points, spacing=0.02):
    for (ax, ay), (bx, by) in itertools.pairwise(points):
        count = max(1, math.ceil(math.hypot(bx - ax, by - ay) / spacing))
        for k in range(count + 1):
            yield ax + (bx - ax) * k / count, ay + (by - ay) * k / count


@pytest.mark.slow
@pytest.mark.parametrize("comfortable", [False, True])
def test_planned_ways_never_touch_anything(episodes, comfortable):
    for episode in episodes:
        points = plan(episode.room, episode.start, episode.target, comfortable)
        assert points[0] == (episode.start.x, episode.start.y)
        assert min(episode.room.clearance(x, y) for x, y in samples(points)) >= ROBOT_RADIUS


@pytest.mark.slow
def test_ways_end_within_stopping_distance_and_are_not_shorter_than_straight(episodes):
    for episode in episodes:
        points = plan(episode.room, episode.start, episode.target)
        end = Pose2D(*points[-1], 0.0)
        assert episode.target.distance_to_surface(end) <= STOP_DISTANCE
        assert path_length(points) >= math.dist(points[0], points[-1]) - 1e-9
        assert shortest_path_length(episode.room, episode.start, episode.target) == path_length(points)


def test_a_straight_free_way_has_its_straight_length():
    corners = ((0.0, 0.0), (8.0, 0.0), (8.0, 4.0), (0.0, 4.0))
    walls = tuple(Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4))
    ball = SceneObject("ball", "red", 6.0, 2.0, 0.0)
    room = Room(0, "train", (Area(0.0, 0.0, 8.0, 4.0),), walls, (), (ball,), (), RoomAppearance())
    length = shortest_path_length(room, Pose2D(1.0, 2.0, 0.0), ball)
    assert length == pytest.approx(5.0 - 0.24 - 0.65, abs=0.15)


def test_an_enclosed_target_cannot_be_reached():
    corners = ((0.0, 0.0), (8.0, 0.0), (8.0, 4.0), (0.0, 4.0))
    walls = [Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4)]
    walls.append(Wall(3.0, 0.0, 3.0, 4.0))
    ball = SceneObject("ball", "red", 6.0, 2.0, 0.0)
    room = Room(0, "train", (Area(0.0, 0.0, 8.0, 4.0),), tuple(walls), (), (ball,), (), RoomAppearance())
    assert shortest_path_length(room, Pose2D(1.0, 2.0, 0.0), ball) == math.inf
    assert next_waypoint(room, Pose2D(1.0, 2.0, 0.0), ball) is None


@pytest.mark.slow
def test_following_way_points_reaches_the_target(episodes):
    for episode in episodes[:20]:
        pose = episode.start
        for _ in range(200):
            point = next_waypoint(episode.room, pose, episode.target, lookahead=0.3)
            if point is None:
                break
            pose = Pose2D(*point, 0.0)
        assert episode.target.distance_to_surface(pose) <= STOP_DISTANCE

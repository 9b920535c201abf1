"""The base: limits, the one-second hold, and contact without penetration."""

import math
import random

import pytest

from navsim.base import BaseLimits, PlanarBase
from navsim.episodes import make_episode
from navsim.errors import BadRequest
from navsim.geometry import Pose2D
from navsim.rooms import Area, Room, RoomAppearance, SceneObject, Wall


def hall(*objects: SceneObject) -> Room:
    corners = ((0.0, 0.0), (20.0, 0.0), (20.0, 4.0), (0.0, 4.0))
    walls = tuple(Wall(*corners[i], *corners[(i + 1) % 4]) for i in range(4))
    return Room(0, "train", (Area(0.0, 0.0, 20.0, 4.0),), walls, (), objects, (), RoomAppearance())


def test_speed_and_acceleration_stay_within_limits():
    limits = BaseLimits()
    base = PlanarBase(hall(), Pose2D(2.0, 2.0, 0.0), limits)
    base.command(99.0, -99.0)
    before = (0.0, 0.0)
    for _ in range(90):
        base.step(0.01)
        assert abs(base.vx - before[0]) <= limits.accel * 0.01 + 1e-9
        assert abs(base.wz - before[1]) <= limits.turn_accel * 0.01 + 1e-9
        before = base.vx, base.wz
    assert base.vx == pytest.approx(limits.forward)
    assert base.wz == pytest.approx(-limits.turn)


def test_command_is_held_one_second_and_then_the_base_stops():
    base = PlanarBase(hall(), Pose2D(2.0, 2.0, 0.0))
    base.command(0.4, 0.0)
    base.step(0.99)
    assert base.vx == pytest.approx(0.4)
    base.step(0.4)
    assert base.vx == 0.0
    at = base.pose
    base.step(1.0)
    assert base.pose == at


def test_a_fresh_command_renews_the_hold():
    base = PlanarBase(hall(), Pose2D(2.0, 2.0, 0.0))
    for _ in range(6):
        base.command(0.4, 0.0)
        base.step(0.5)
    assert base.vx == pytest.approx(0.4)
    assert base.travelled == pytest.approx(base.pose.x - 2.0)


def test_left_is_positive():
    base = PlanarBase(hall(), Pose2D(2.0, 2.0, 0.0))
    base.command(0.0, 0.5)
    base.step(1.0)
    assert 0.3 < base.pose.yaw < 0.5


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_command_that_is_not_finite_is_refused_and_changes_nothing(bad):
    base = PlanarBase(hall(), Pose2D(2.0, 2.0, 0.0))
    base.command(0.3, 0.0)
    with pytest.raises(BadRequest, match="finite"):
        base.command(bad, 0.0)
    with pytest.raises(BadRequest, match="finite"):
        base.command(0.0, bad)
    base.step(0.5)
    assert base.vx == pytest.approx(0.3)


def test_driving_into_a_box_stops_at_its_surface_and_counts_once():
    box = SceneObject("box", "red", 4.0, 2.0, 0.0)
    base = PlanarBase(hall(box), Pose2D(2.0, 2.0, 0.0))
    for _ in range(50):
        base.command(0.6, 0.0)
        base.step(0.1)
    assert base.collisions == 1
    assert base.in_contact
    assert base.vx == 0.0
    assert box.distance_to_surface(base.pose) == pytest.approx(base.radius, abs=0.03)


def test_a_second_contact_counts_after_backing_off():
    base = PlanarBase(hall(SceneObject("box", "red", 4.0, 2.0, 0.0)), Pose2D(3.0, 2.0, 0.0))
    for speed in (0.6, -0.4, 0.6):
        for _ in range(20):
            base.command(speed, 0.0)
            base.step(0.1)
    assert base.collisions == 2


def test_a_glancing_contact_slides_along():
    base = PlanarBase(hall(), Pose2D(2.0, 3.6, math.radians(20)))
    for _ in range(30):
        base.command(0.5, 0.0)
        base.step(0.1)
    assert base.collisions == 1
    assert base.pose.x > 2.7  # touching slows it, as friction would


@pytest.mark.slow
def test_no_drive_ever_enters_anything():
    for seed in range(12):
        episode = make_episode(seed)
        base = PlanarBase(episode.room, episode.start)
        rng = random.Random(seed)
        for _ in range(60):
            base.command(rng.uniform(-0.4, 0.8), rng.uniform(-1.0, 1.0))
            for _ in range(10):
                base.step(0.1)
                assert episode.room.clearance(base.pose.x, base.pose.y) >= base.radius - 1e-6
                assert episode.room.contains(base.pose.x, base.pose.y)

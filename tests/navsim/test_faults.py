"""Faults of odometry, driver and base: what each does, and that it ends."""

import math
from itertools import pairwise

import pytest

from navsim.base import BaseLimits, PlanarBase
from navsim.episodes import make_episode
from navsim.faults import FROZEN, JUMPING, MIRRORED, NAN, NONE, SCALED, BrokenOdometry, LateDriver
from navsim.geometry import Pose2D

WALK = [Pose2D(0.1 * i, 0.05 * i, 0.2 * i) for i in range(6)]


def told(fault, poses=WALK, noise=0.0, scale=1.0):
    odometry = BrokenOdometry()
    odometry.tell(poses[0], NONE)
    return [odometry.tell(pose, fault, noise, scale) for pose in poses[1:]]


def test_a_sound_odometry_tells_the_truth_and_a_noisy_one_nearly_and_never_twice_the_same():
    for a, b in zip(told(NONE), WALK[1:], strict=True):
        assert (a.x, a.y, a.yaw) == pytest.approx((b.x, b.y, b.yaw))
    standing = told(NONE, [WALK[1]] * 50, noise=0.001)
    assert len(set(standing)) == len(standing)
    assert max(math.hypot(p.x - 0.1, p.y - 0.05) for p in standing) < 0.006


def test_a_frozen_one_repeats_itself_to_the_bit_and_then_goes_on_with_the_truth():
    odometry = BrokenOdometry()
    first = odometry.tell(WALK[0], NONE)
    assert {odometry.tell(pose, FROZEN, 0.01) for pose in WALK} == {first}
    thawed = odometry.tell(WALK[-1], NONE)
    assert (thawed.x, thawed.y, thawed.yaw) == pytest.approx((0.5, 0.25, 1.0))


def test_a_mirrored_one_turns_the_other_way_and_a_scaled_one_goes_further():
    assert told(MIRRORED, [Pose2D(0, 0, 0), Pose2D(0, 0, 0.4)])[-1].yaw == pytest.approx(-0.4)
    assert told(SCALED, [Pose2D(0, 0, 0), Pose2D(0.3, 0, 0)], scale=2.0)[-1].x == pytest.approx(0.6)


def test_nan_and_jumps_are_as_they_were():
    assert all(math.isnan(p.x) for p in told(NAN))
    xs = [p.x for p in told(JUMPING, [WALK[0]] * 5)]
    assert {abs(b - a) for a, b in pairwise(xs)} == {2.0}


def test_a_late_driver_hands_on_in_order_and_may_drop_zeros():
    driver = LateDriver()
    driver.hear(0.5, 0.0, 0.0, delay=0.3)
    driver.hear(0.0, 0.0, 0.1, delay=0.3, drops_zeros=True)
    driver.hear(0.001, 0.0, 0.2, delay=0.3, drops_zeros=True)
    assert driver.due(0.29) == [] and driver.due(0.3) == [(0.5, 0.0)]
    assert driver.due(1.0) == [(0.001, 0.0)]


@pytest.mark.parametrize(("stuck", "forward", "back"), [("forward", 0.0, True), ("backward", True, 0.0)])
def test_a_stuck_base_goes_one_way_only_and_still_turns(stuck, forward, back):
    episode = make_episode(0)
    for speed, moves in ((0.3, forward), (-0.3, back)):
        base = PlanarBase(episode.room, episode.start, BaseLimits(hold=5))
        base.stuck = stuck
        base.command(speed, 0.4)
        base.step(0.3)
        assert (base.travelled > 0.01) is bool(moves) and base.wz == pytest.approx(0.4)


@pytest.mark.slow
def test_a_pushed_base_is_moved_without_a_command_and_not_through_walls():
    episode = make_episode(0)
    base = PlanarBase(episode.room, episode.start)
    base.push = (0.0, 0.4, 0.0)
    base.step(0.5)
    assert base.travelled == pytest.approx(0.2) and base.vx == 0.0
    base.step(60.0)
    assert episode.room.clearance(base.pose.x, base.pose.y) >= base.radius - 1e-6

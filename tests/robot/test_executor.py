"""The motion executor against a simulated base with acceleration limits, in simulated time."""

import math

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose, Velocity
from spec_vlm_nav.motion.executor import ExecutorConfig, MotionExecutor

DT = 1 / 30


class Base:
    """A planar base that follows velocities with limited acceleration; `stuck` swallows linear motion."""

    def __init__(self, pose=Pose(1.0, -2.0, 3.0), stuck=False, slip=1.0):
        self.pose, self.velocity, self.stuck, self.slip = pose, Velocity(), stuck, slip

    def step(self, wanted, dt=DT):
        def towards(now, goal, rate):
            return now + max(-rate * dt, min(rate * dt, goal - now))

        self.velocity = Velocity(
            towards(self.velocity.linear, wanted.linear, 2.0),
            towards(self.velocity.angular, wanted.angular, 6.0),
        )
        yaw = self.pose.yaw + self.velocity.angular * dt
        step = 0.0 if self.stuck else self.velocity.linear * dt * self.slip
        self.pose = Pose(
            self.pose.x + step * math.cos(yaw),
            self.pose.y + step * math.sin(yaw),
            math.atan2(math.sin(yaw), math.cos(yaw)),
        )


def carry_out(motion, base, config=None, limit_s=20.0):
    executor = MotionExecutor(config)
    executor.start(motion, base.pose, 0.0)
    now, progress = 0.0, MotionState.MOVING
    while progress in (MotionState.MOVING, MotionState.SETTLING) and now < limit_s:
        wanted, progress = executor.update(base.pose, now)
        base.step(wanted)
        now += DT
    return progress, executor.done(base.pose), now


@pytest.mark.parametrize("distance", [0.25, 0.5, 0.75, -0.12])
def test_a_distance_is_driven_within_tolerance_and_the_base_stands(distance):
    base = Base()
    progress, done, took = carry_out(Motion(distance_m=distance), base)
    assert progress is MotionState.REACHED
    assert done.distance_m == pytest.approx(distance, abs=0.025)
    assert abs(base.velocity.linear) < 0.01
    assert took < 4


@pytest.mark.parametrize("degrees", [7.5, 15, 30, 45, -15, -30, -45])
def test_an_angle_is_turned_within_tolerance_across_the_wrap_at_pi(degrees):
    base = Base(Pose(0, 0, math.copysign(math.pi - 0.05, degrees)))
    progress, done, _ = carry_out(Motion(angle_rad=math.radians(degrees)), base)
    assert progress is MotionState.REACHED
    assert math.degrees(done.angle_rad) == pytest.approx(degrees, abs=2)


def test_distance_is_measured_by_odometry_not_by_time():
    progress, done, _ = carry_out(Motion(distance_m=0.5), Base(slip=0.6))
    assert progress is MotionState.REACHED and done.distance_m == pytest.approx(0.5, abs=0.025)


def test_a_base_against_a_wall_is_reported_as_blocked_soon():
    progress, done, took = carry_out(Motion(distance_m=0.75), Base(stuck=True))
    assert progress is MotionState.BLOCKED and abs(done.distance_m) < 0.02 and took < 1.0


def test_a_base_that_slides_along_a_wall_is_reported_as_blocked():
    executor, pose = MotionExecutor(), Pose(0, 0, 0)
    executor.start(Motion(distance_m=0.75), pose, 0.0)
    progress, now = MotionState.MOVING, 0.0
    while progress is MotionState.MOVING:
        pose, now = Pose(pose.x + 0.01, pose.y + 0.006, 0), now + DT
        _, progress = executor.update(pose, now)
    assert progress is MotionState.BLOCKED and 0.1 < pose.y < 0.12


def test_a_motion_too_slow_to_finish_expires():
    config = ExecutorConfig(blocked_linear=0.0001)
    progress, _, took = carry_out(Motion(distance_m=0.75), Base(slip=0.05), config)
    assert progress is MotionState.EXPIRED
    assert took == pytest.approx(MotionExecutor(config).timeout_s(Motion(distance_m=0.75)), abs=0.1)


def test_an_overshoot_is_not_driven_back():
    executor = MotionExecutor()
    executor.start(Motion(distance_m=0.25), Pose(0, 0, 0), 0.0)
    wanted, progress = executor.update(Pose(0.35, 0, 0), 0.5)
    assert wanted.linear == 0 and progress is MotionState.SETTLING


def test_a_base_that_slides_on_is_waited_for_until_it_stands_but_not_for_ever():
    def took(slides_for_s):
        executor, now = MotionExecutor(), 0.0
        executor.start(Motion(distance_m=0.25), Pose(0, 0, 0), 0.0)
        while True:
            now += DT
            wanted, progress = executor.update(Pose(0.24 + 0.3 * min(now, slides_for_s), 0, 0), now)
            assert wanted == Velocity()
            if progress is not MotionState.SETTLING:
                return progress, now

    assert took(0.0) == (MotionState.REACHED, pytest.approx(0.13, abs=0.05))
    assert took(0.3) == (MotionState.REACHED, pytest.approx(0.43, abs=0.05))
    assert took(9.0) == (MotionState.REACHED, pytest.approx(0.63, abs=0.05))


def test_heading_is_held_on_a_straight_motion():
    executor = MotionExecutor()
    executor.start(Motion(distance_m=0.75), Pose(0, 0, 0), 0.0)
    wanted, _ = executor.update(Pose(0.1, 0, 0.1), 0.1)
    assert wanted.angular < 0


def test_it_never_asks_for_more_than_its_speeds():
    base, executor = Base(), MotionExecutor()
    executor.start(Motion(angle_rad=1.5), base.pose, 0.0)
    speeds = []
    for tick in range(100):
        wanted, _ = executor.update(base.pose, tick * DT)
        speeds.append(abs(wanted.angular))
        base.step(wanted)
    assert max(speeds) == pytest.approx(executor.config.angular_speed)


def test_without_a_motion_it_asks_for_nothing():
    assert MotionExecutor().update(Pose(0, 0, 0), 0.0)[0] == Velocity()

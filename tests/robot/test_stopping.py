"""How Twists say stop: a creep for drivers that drop zeros, zeros, braking; and silence once the robot stands."""

import itertools
from types import SimpleNamespace

import pytest

from spec_vlm_nav.common.geometry import ZERO, Motion, Velocity
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.stopping import QUIET_AFTER_S, READ_WITHIN_S, RestDetector, StopConfig, TwistStops
from tests.robot.faulty_robot import FaultyRobot

DT = 1 / 30
FAST = Velocity(0.5, -0.8)
CREEP = Velocity(0.001, 0.0)


class Said:
    """What one TwistStops publishes, a tick after the other; begins with a motion."""

    def __init__(self, style="epsilon", moving=FAST, **config):
        self.stops, self.now = TwistStops(StopConfig(style, **config)), 10.0
        if moving:
            self.tick(RestDetector.UNKNOWN, moving)

    def tick(self, rest=RestDetector.UNKNOWN, velocity=ZERO):
        self.now += DT
        return self.stops.velocity(velocity, rest, self.now)

    def ticks(self, seconds, rest=RestDetector.UNKNOWN):
        return [self.tick(rest) for _ in range(round(seconds / DT))]


def test_a_motion_is_published_as_it_is():
    said = Said()
    assert [said.tick(velocity=v) for v in (FAST, CREEP, FAST)] == [FAST, CREEP, FAST]


def test_epsilon_begins_a_stop_with_one_creep_too_slow_to_see_and_goes_on_with_zeros():
    assert Said().ticks(1.0) == [CREEP] + [ZERO] * 29
    assert Said(epsilon_mps=0.004).ticks(DT) == [Velocity(0.004, 0.0)]


def test_a_stop_in_between_ticks_is_said_at_once_and_the_zeros_only_when_the_creep_has_been_read():
    said = Said()
    assert said.stops.stop(said.now + 0.001) == CREEP
    assert said.stops.velocity(ZERO, RestDetector.UNKNOWN, said.now + 0.001 + READ_WITHIN_S / 2) is None
    assert said.stops.velocity(ZERO, RestDetector.UNKNOWN, said.now + 0.002 + READ_WITHIN_S) == ZERO


def test_a_stop_of_a_robot_that_never_moved_is_zero():
    said = Said(moving=None)
    assert said.stops.stop(said.now) == ZERO and said.ticks(0.5) == [ZERO] * 15


def test_zero_never_creeps():
    said = Said("zero")
    assert said.stops.stop(said.now) == ZERO
    assert set(said.ticks(0.5) + said.ticks(0.5, RestDetector.RESISTS)) == {ZERO}


def test_brake_slows_both_axes_down_evenly_then_creeps_then_zeros():
    said = Said("brake", linear_deceleration=2.0, angular_deceleration=6.0).ticks(1.0)
    speeds = [Velocity(0.5, -0.8), *said]
    for one, next_one in itertools.pairwise(speeds):
        assert one.linear - next_one.linear <= 2.0 * DT + 1e-9 or next_one == CREEP
        assert -1e-9 <= next_one.angular - one.angular <= 6.0 * DT + 1e-9
    braking = [v for v in said if v not in (CREEP, ZERO)]
    assert len(braking) == 7 and min(v.linear for v in braking) > 0  # 0.5 m/s at 2 m/s2 and 30 Hz
    assert said[7:] == [CREEP] + [ZERO] * 22


@pytest.mark.parametrize("moving", [Velocity(-0.3, 0.0), Velocity(0.0, 0.8), Velocity(-0.3, 0.4)])
def test_braking_never_goes_through_zero(moving):
    for said in Said("brake", moving).ticks(1.0):
        assert said == CREEP or (said.linear * moving.linear >= 0 and said.angular * moving.angular >= 0)


@pytest.mark.parametrize("style", ["epsilon", "brake"])
def test_where_the_base_goes_on_the_creep_is_said_again_and_again(style):
    said = Said(style)
    said.ticks(0.5)
    assert said.ticks(6 * DT, RestDetector.RESISTS) in ([CREEP] * 6, [CREEP, ZERO] * 3)
    assert said.tick() == ZERO


def test_once_the_robot_has_stood_for_a_while_nothing_more_is_said():
    said = Said()
    assert None not in said.ticks(QUIET_AFTER_S - DT, RestDetector.STANDS)
    assert set(said.ticks(3.0, RestDetector.STANDS)[2:]) == {None}
    assert (
        said.tick(velocity=FAST) == FAST and said.tick(RestDetector.STANDS) == CREEP
    )  # and again after a motion


def test_as_long_as_it_is_not_known_that_the_robot_stands_zeros_go_on():
    assert Said().ticks(20.0)[1:] == [ZERO] * 599


def test_a_stop_by_hand_breaks_the_silence():
    said = Said()
    said.ticks(3.0, RestDetector.STANDS)
    assert said.stops.stop(said.now) == ZERO and said.tick(RestDetector.STANDS) == ZERO


def test_a_node_that_ends_while_it_brakes_leaves_a_zero_behind():
    pytest.importorskip("rclpy", reason="no ROS 2 here")
    from spec_vlm_nav.ros.backends.outputs import TwistOutput

    published = []
    node = SimpleNamespace(create_publisher=lambda *_: SimpleNamespace(publish=published.append))
    output = TwistOutput(node, False, "", StopConfig("brake", linear_deceleration=0.2))
    output.send(Velocity(1.5, 0.0), RestDetector.UNKNOWN)
    assert not any(output.stop() for _ in range(50)) and published[-1].linear.x > 0
    output.release()
    assert published[-1].linear.x == 0.0
    count = len(published)
    output.release()
    assert len(published) == count


# -- with a base


def stopped(robot):
    """A robot at full speed, stopped by hand; returns how far it goes on, m."""
    robot.send(CommandKind.MOVE, Motion(1.0))
    robot.run(1.2)
    assert robot.base.linear > 0.4
    began = robot.base.pose.x
    robot.core.stop()
    robot.said = robot.stops.stop(robot.now)
    robot.base.command(robot.said.linear, robot.said.angular, robot.now)
    return robot.run(3.0).base.pose.x - began


QUICK = {"accel": 3.0, "hold_s": 1.0}  # brakes from 0.5 m/s within 4 cm


@pytest.mark.parametrize("drops_zeros", [False, True])
@pytest.mark.parametrize(("delay_s", "most_m"), [(0.0, 0.08), (0.15, 0.15), (0.3, 0.23)])
def test_a_stop_by_default_is_obeyed_also_by_a_driver_that_drops_zeros(drops_zeros, delay_s, most_m):
    assert stopped(FaultyRobot(drops_zeros=drops_zeros, delay_s=delay_s, **QUICK)) <= most_m


def test_zeros_alone_are_what_such_a_driver_ignores():
    assert stopped(FaultyRobot({"stop_style": "zero"}, **QUICK)) <= 0.08
    assert stopped(FaultyRobot({"stop_style": "zero"}, drops_zeros=True, **QUICK)) > 0.3


def test_braking_goes_on_for_as_long_as_it_takes():
    assert 0.05 < stopped(FaultyRobot({"stop_style": "brake"}, drops_zeros=True, **QUICK)) <= 0.2


def test_a_creep_that_was_lost_is_said_again_when_the_robot_is_seen_to_go_on():
    robot = FaultyRobot(drops_zeros=True, accel=3.0, hold_s=9.0)
    hear = robot.base.command

    def lose_the_first(linear, angular, now):
        if (linear, angular) != (CREEP.linear, CREEP.angular) or now > 3.0:
            hear(linear, angular, now)

    robot.base.command = lose_the_first
    robot.send(CommandKind.MOVE, Motion(1.0))
    robot.run(2.6 - robot.now).core.stop()
    robot.run(2.0)
    assert robot.base.linear <= CREEP.linear  # without the second creep it would have gone on for 9 s


# -- what rest is, and silence


def test_rest_is_known_once_odometry_has_shown_it_and_unknown_while_moving():
    robot = FaultyRobot()
    robot.send(CommandKind.MOVE, Motion(0.5))
    assert robot.run(0.5).core.rest(robot.now) is RestDetector.UNKNOWN
    while robot.core.is_moving:
        robot.run(DT)
    assert robot.core.rest(robot.now) is RestDetector.UNKNOWN
    assert robot.run(1.5).core.rest(robot.now) is RestDetector.STANDS


def test_a_base_that_goes_on_after_a_stop_resists():
    robot = FaultyRobot({"stop_style": "zero"}, drops_zeros=True, hold_s=9.0)
    robot.send(CommandKind.MOVE, Motion(1.0))
    robot.run(1.2).core.stop()
    assert robot.run(0.5).core.rest(robot.now) is RestDetector.RESISTS


@pytest.mark.parametrize(
    "fault",
    ["frozen", "nan", "stopped", "foreign", "stuck stamps"],
)
def test_an_odometry_that_cannot_be_relied_on_never_shows_that_the_robot_stands(fault):
    robot = FaultyRobot({"stop_style": "zero"}, drops_zeros=True, hold_s=9.0)
    robot.send(CommandKind.MOVE, Motion(1.0))
    robot.run(1.0).fault(fault).run(4.0)
    assert robot.base.linear > 0.4 and not robot.core.is_moving  # a base that nothing has stopped
    assert robot.core.rest(robot.now) is not RestDetector.STANDS and robot.silent_s == 0


@pytest.mark.parametrize("delay_s", [0.0, 0.6])
@pytest.mark.parametrize("noise_m", [0.0, 0.0002, 0.001])
def test_the_twist_back_end_falls_silent_within_three_seconds_of_a_motion_s_end(noise_m, delay_s):
    robot = FaultyRobot(noise_m=noise_m, delay_s=delay_s)
    robot.ask(0.25)
    assert robot.run(3.0).silent_s > 0.3 and robot.run(5.0).silent_s > 5.0


def test_a_motion_that_ends_in_faults_ends_in_zeros_until_the_robot_stands():
    robot = FaultyRobot(stuck="all")
    robot.ask(0.5)
    assert robot.said == CREEP and robot.run(0.1).said == ZERO and robot.silent_s == 0
    assert robot.run(4.0).silent_s > 0.5


def test_a_robot_that_somebody_else_drives_later_is_left_to_them():
    robot = FaultyRobot()
    robot.ask(0.25)
    assert robot.run(15.0).silent_s > 10.0
    robot.base.traits.push = (0.3, 0.0, 0.0)
    assert robot.run(2.0).silent_s > 12.0

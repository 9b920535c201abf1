"""Whether odometry lives: jitter against creep, dead stamps, foreign frames, and one pose again and again."""

import math
import random

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Pose
from spec_vlm_nav.motion.response.liveness import JUDGED_OVER, REPEATS_S, REST_S, Liveness
from spec_vlm_nav.motion.watchdogs import OdometryReading, OdometryWatch, WatchdogConfig
from tests.robot.faulty_robot import FaultyRobot

DT = 1 / 30
RESTED = REST_S + 1.0
POSE = Pose(1.0, -2.0, 0.3)


def jittering(count=2 * JUDGED_OVER, noise=0.0002, seed=1):
    gauss = random.Random(seed).gauss
    return [
        Pose(POSE.x + gauss(0, noise), POSE.y + gauss(0, noise), POSE.yaw + gauss(0, noise))
        for _ in range(count)
    ]


class Heard:
    """A Liveness that hears poses at 30 Hz."""

    def __init__(self, poses=(), rested_s=RESTED):
        self.liveness, self.now = Liveness(), 50.0
        self.hear(poses, rested_s)

    def hear(self, poses, rested_s=RESTED):
        for pose in poses:
            self.now += DT
            self.liveness.hear(pose, self.now, rested_s)
        return self.liveness

    def repeat(self, seconds, pose=POSE):
        return self.hear([pose] * (round(seconds / DT) + 1))


# -- what a source is like


@pytest.mark.parametrize("noise", [1e-9, 0.0002, 0.01])
def test_a_source_that_never_repeats_itself_at_rest_lives(noise):
    liveness = Heard(jittering(noise=noise)).liveness
    assert liveness.is_alive and not liveness.is_dead


def test_a_source_that_repeats_itself_at_rest_is_neither_called_alive_nor_dead():
    liveness = Heard().repeat(60.0)
    assert not liveness.is_alive and not liveness.is_dead


def carried(ahead=0.0, aside=0.0, turned=0.0, count=3 * JUDGED_OVER):
    return [
        Pose(ahead * i * DT, aside * i * DT, math.remainder(turned * i * DT, math.tau)) for i in range(count)
    ]


@pytest.mark.parametrize(
    "way",
    [{"ahead": 0.001}, {"ahead": -0.5}, {"aside": 0.2}, {"turned": 0.8}, {"ahead": 0.3, "turned": -1.0}],
)
def test_creeping_or_being_pushed_is_no_jitter_and_standing_after_it_no_death(way):
    heard = Heard(carried(**way))
    assert not heard.liveness.is_alive
    assert not heard.repeat(10.0).is_dead


def test_jitter_of_a_moving_robot_is_not_judged():
    assert not Heard(jittering(300), rested_s=REST_S - 0.1).repeat(5.0).is_dead


def test_a_source_that_repeats_every_other_pose_is_not_lively():
    doubled = [pose for pose in jittering(100) for _ in range(2)]
    assert not Heard(doubled).repeat(5.0).is_dead


# -- death


def test_a_lively_source_that_repeats_one_pose_is_dead_after_half_a_second_and_lives_again_with_the_next():
    heard = Heard(jittering())
    last = jittering()[-1]
    assert not heard.repeat(REPEATS_S - 2 * DT, last).is_dead
    assert heard.repeat(3 * DT, last).is_dead and not heard.liveness.is_alive
    assert "repeated one pose for 0.6 s, which it never did before" in heard.repeat(0.0, last).reason
    assert not heard.hear(jittering(2)).is_dead and heard.liveness.is_alive


def test_a_dead_source_is_not_learnt_to_be_one_that_repeats_itself():
    heard = Heard(jittering())
    assert heard.repeat(600.0).is_dead


def test_forgiven_it_learns_anew_what_the_source_is_like():
    heard = Heard(jittering())
    heard.repeat(5.0)
    heard.liveness.forgive()
    assert not heard.repeat(30.0).is_dead
    heard.hear(jittering())
    assert heard.repeat(1.0).is_dead


def test_a_source_that_lives_has_nothing_to_be_forgiven():
    heard = Heard(jittering())
    heard.liveness.forgive()
    assert heard.liveness.is_alive and heard.repeat(1.0).is_dead


# -- stamps and frames


class Watched:
    def __init__(self, **config):
        self.watch, self.config, self.now, self.stamp = OdometryWatch(), WatchdogConfig(**config), 5.0, 100.0

    def hear(self, seconds=DT, stamp_step=DT, frame="odom", base_frame="base_link", pose=POSE):
        for _ in range(round(seconds / DT)):
            self.now, self.stamp = self.now + DT, self.stamp + stamp_step
            self.watch.hear(OdometryReading(pose, self.stamp, frame, base_frame), self.now, self.config)
        return self

    @property
    def fault(self):
        return self.watch.fault(self.now, self.config)


def test_stamps_that_do_not_advance_count_as_no_odometry_within_its_time_out():
    watched = Watched(odom_timeout_s=0.5).hear(1.0)
    assert watched.hear(0.4, stamp_step=0.0).fault == ""
    assert "its stamps do not advance" in watched.hear(0.2, stamp_step=0.0).fault
    assert watched.watch.repeated == 18 and watched.hear().fault == ""


def test_stamps_that_run_backwards_are_old_and_a_clock_that_was_set_once_is_not():
    watched = Watched().hear(1.0)
    assert watched.hear(0.7, stamp_step=-DT).fault
    watched = Watched().hear(1.0)
    watched.stamp -= 50.0
    assert watched.hear(1.0).fault == "" and watched.watch.repeated == 1


def test_stamps_that_are_never_filled_are_not_looked_at():
    watched = Watched()
    watched.stamp = 0.0
    assert watched.hear(2.0, stamp_step=0.0).fault == "" and watched.watch.repeated == 0


@pytest.mark.parametrize("other", [{"base_frame": "other_link"}, {"frame": "map"}])
def test_poses_in_other_frames_are_a_fault_until_they_have_ceased_for_a_time_out(other):
    watched = Watched().hear(1.0)
    assert "two sources on one topic?" in watched.hear(DT, **other).fault
    assert watched.hear(0.4).fault and watched.hear(0.2).fault == ""


def test_the_frames_that_were_asked_for_are_the_right_ones_from_the_first_message_on():
    assert "odom -> other_link instead of odom -> base_link" in (
        Watched(base_frame="base_link").hear(base_frame="other_link").fault
    )
    assert Watched(odom_frame="map").hear().fault and Watched(odom_frame="odom").hear().fault == ""


def test_a_reset_takes_the_next_frames_for_the_right_ones():
    watched = Watched().hear(1.0).hear(1.0, base_frame="trunk")
    watched.watch.reset()
    assert watched.hear(DT, base_frame="trunk").fault == "" and watched.hear(DT).fault


# -- at the wheels


@pytest.mark.parametrize("fault", ["frozen", "stuck stamps", "foreign", "stopped"])
def test_nothing_begins_once_the_source_has_been_dead_for_long_enough(fault):
    robot = FaultyRobot().fault(fault).run(0.7)
    ends = robot.insist((0.5, 0.0), (0.0, 0.5), times=2)
    assert robot.commanded_m == robot.commanded_rad == 0
    assert {end.state for end in ends} <= {MotionState.NO_RESPONSE, MotionState.STALE_ODOM}
    assert robot.fault("none").run(0.7).ask(0.25).state is MotionState.REACHED

"""Commanded against measured motion, with the default parameters: what lies, sticks or is pushed gets little motion."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Velocity
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.response.comparing import DeviationKind
from tests.robot.faulty_robot import FaultyRobot

pytestmark = pytest.mark.slow

THIRTY = math.radians(30)
FAR, STEP, TURN = (0.75, 0.0), (0.25, 0.0), (0.0, THIRTY)
# m of noise: an odometry that is never twice the same, and one that repeats itself.
LIVELY, IDEAL = 0.0002, 0.0
NO, WRONG = MotionState.NO_RESPONSE, MotionState.WRONG_RESPONSE


def states(ends):
    return {end.state for end in ends}


def struck_in_mid_motion(robot, motion, fault, scale=1.0):
    """Begin a motion, let the fault strike when it is well under way, and forget what went out before."""
    robot.send(CommandKind.MOVE, Motion(*motion))
    robot.run(0.6).fault(fault, scale)
    robot.commanded_m = robot.commanded_rad = 0.0
    while robot.core.is_moving:
        robot.run(0.1)


def gets_nothing(robot, *motions):
    """Whether insisting on motions gets nothing to go out."""
    before = robot.commanded_m, robot.commanded_rad
    robot.insist(*motions, times=2)
    return (robot.commanded_m, robot.commanded_rad) == before


# -- odometry that shows nothing


@pytest.mark.parametrize(
    ("fault", "noise_m", "moving", "motions"),
    [
        ("frozen", LIVELY, False, [FAR]),
        ("frozen", LIVELY, True, [TURN]),
        ("frozen", IDEAL, True, [FAR, TURN]),
        ("frozen", IDEAL, False, [TURN, STEP]),
        ("frozen, noisy", LIVELY, True, [FAR]),
        ("frozen, noisy", LIVELY, False, [TURN]),
        ("frozen, noisy", LIVELY, True, [TURN, STEP]),
    ],
)
def test_frozen_odometry_gets_little_motion_whatever_is_asked_and_then_none(fault, noise_m, moving, motions):
    robot = FaultyRobot(noise_m=noise_m)
    if moving:
        struck_in_mid_motion(robot, motions[0], fault)
    ends = robot.fault(fault).insist(*motions, times=4)
    assert robot.commanded_m <= 0.6 and robot.commanded_rad <= 0.9
    assert states(ends) == {NO} and gets_nothing(robot, *motions)


def latched(**kwargs):
    robot = FaultyRobot(noise_m=IDEAL, **kwargs).fault("frozen")
    robot.insist(STEP, times=2)
    assert robot.lost is not None and "until odometry moves, or ~/reset" in robot.ask(*STEP).reason
    return robot


def test_odometry_that_is_seen_to_move_again_is_another_chance():
    robot = latched().fault("none")
    assert robot.run(3).ask(*STEP).state is NO  # it has not moved yet: no caller knows
    robot.base.traits.push = (0.2, 0.0, 0.0)
    robot.run(0.6)
    robot.base.traits.push = (0.0, 0.0, 0.0)
    assert robot.run(2).ask(*STEP).state is MotionState.REACHED and robot.lost is None


def test_a_reset_is_another_chance_from_the_next_instruction_on():
    robot = latched().fault("none")
    robot.core.reset()
    assert robot.ask(*STEP).state is MotionState.REFUSED and robot.run(0.5).said == Velocity()
    robot.instruction += 1
    assert robot.ask(*STEP).state is MotionState.REACHED


def test_a_reset_of_an_odometry_that_is_still_frozen_gets_as_little_again():
    robot = latched()
    for _ in range(2):
        robot.commanded_m = 0.0
        robot.reset().insist(STEP, TURN, times=2)
        assert robot.commanded_m <= 0.3 and robot.lost is not None


# -- a base that does not move


@pytest.mark.parametrize(
    ("stuck", "motions", "noise_m"),
    [
        ("forward", [FAR], LIVELY),
        ("turn", [TURN], IDEAL),
        ("all", [FAR], IDEAL),
        ("all", [TURN], LIVELY),
        ("all", [FAR, TURN], LIVELY),
    ],
)
def test_a_base_that_does_not_move_is_pushed_once_a_direction_and_no_more(stuck, motions, noise_m):
    robot = FaultyRobot(noise_m=noise_m, stuck=stuck)
    ends = robot.insist(*motions, times=3)
    assert states(ends) == {NO} and robot.commanded_m <= 0.25 and robot.commanded_rad <= 0.5
    assert gets_nothing(robot, *motions)


def test_where_only_forward_sticks_each_push_after_another_motion_stays_short():
    robot = FaultyRobot(stuck="forward")
    ends = robot.insist(FAR, TURN, times=3)
    assert [e.state for e in ends[1::2]] == [MotionState.REACHED] * 3 and states(ends[::2]) == {NO}
    assert robot.commanded_m / 3 <= 0.25


def test_the_direction_that_did_not_respond_is_open_again_after_another_one_did():
    robot = FaultyRobot(stuck="forward")
    robot.ask(*FAR)
    assert "another motion must succeed first" in robot.ask(*FAR).reason and robot.lost is None
    robot.base.traits.stuck = ""
    assert robot.ask(*FAR).state is NO
    assert robot.ask(*TURN).state is MotionState.REACHED is robot.ask(*FAR).state


# -- odometry that shows something else


@pytest.mark.parametrize(
    ("fault", "scale", "motion", "most_m", "most_rad", "moving"),
    [
        ("mirrored x", 1.0, FAR, 0.25, 0.1, True),
        ("mirrored x", 1.0, STEP, 0.25, 0.1, False),
        ("mirrored yaw", 1.0, TURN, 0.0, 0.4, False),
        ("mirrored yaw", 1.0, TURN, 0.0, 0.4, True),
        ("rotated", 1.0, FAR, 0.3, 0.1, True),
        ("rotated", 1.0, FAR, 0.3, 0.1, False),
        ("scaled", 3.0, FAR, 0.25, 0.1, False),
        ("scaled", 3.0, TURN, 0.0, 0.5, True),
        ("scaled", 0.2, FAR, 1.6, 0.1, True),
        ("scaled", 0.4, FAR, 2.8, 0.1, False),
    ],
)
def test_a_wrong_response_twice_is_the_end_until_a_reset(fault, scale, motion, most_m, most_rad, moving):
    robot = FaultyRobot()
    if moving:
        struck_in_mid_motion(robot, motion, fault, scale)
    robot.fault(fault, scale).insist(motion, times=4)
    assert robot.commanded_m <= most_m and robot.commanded_rad <= most_rad
    assert gets_nothing(robot, STEP, TURN)
    end = robot.ask(*motion)
    assert end.state is WRONG and "nothing moves until ~/reset" in end.reason
    robot.base.traits.push = (0.2, 0.0, 0.0)
    robot.run(1.0).fault("none")
    robot.base.traits.push = (0.0, 0.0, 0.0)
    assert robot.run(2).ask(*motion).state is WRONG  # movement proves nothing to one that lies
    assert robot.reset().ask(*motion).state is MotionState.REACHED


def test_a_direction_that_is_shut_forgives_no_wrong_response_where_the_robot_is_seen_to_move():
    robot = FaultyRobot(noise_m=LIVELY, stuck="turn").run(3.0)
    assert robot.ask(*TURN).state is NO and robot.lost is None  # the direction is shut
    robot.fault("mirrored x").insist(FAR, times=2)
    assert robot.lost is not None and robot.lost.kind is DeviationKind.WRONG
    assert "nothing moves until ~/reset" in robot.run(2.0).ask(*FAR).reason


@pytest.mark.parametrize("fault", ["mirrored x", "rotated"])
def test_turns_that_are_shown_right_do_not_make_a_wrong_straight_motion_good(fault):
    robot = FaultyRobot().fault(fault)
    robot.insist(TURN, FAR, times=4)
    assert robot.lost is not None and robot.commanded_m <= 0.25


@pytest.mark.parametrize("motion", [STEP, TURN], ids=["step", "turn"])
def test_an_odometry_that_shows_too_little_is_told_also_over_short_motions(motion):
    robot = FaultyRobot().fault("scaled", 0.4)
    robot.insist(motion, times=5)
    assert robot.lost is not None


# -- walls


@pytest.mark.parametrize(("at_m", "noise_m"), [(0.02, LIVELY), (0.1, IDEAL), (0.3, LIVELY), (0.6, IDEAL)])
def test_a_wall_is_met_and_pushed_at_once_more_at_most(at_m, noise_m):
    robot = FaultyRobot(noise_m=noise_m, walls=[(0.0, at_m)])
    ends = robot.insist(FAR, times=3)
    assert robot.base.pose.x <= at_m + 1e-6 and robot.commanded_m <= at_m + 0.55
    assert MotionState.REACHED not in states(ends) and gets_nothing(robot, FAR)


@pytest.mark.parametrize("degrees", [30, 45, 60])
def test_sliding_along_a_wall_ends_the_motion(degrees):
    robot = FaultyRobot(walls=[(math.radians(degrees), 0.1)])
    end = robot.ask(*FAR)
    assert end.state is MotionState.BLOCKED and robot.commanded_m <= 0.6


# -- being moved


@pytest.mark.parametrize("push", [(0.3, 0.0, 0.0), (-0.3, 0.0, 0.0), (0.0, 0.3, 0.0), (0.0, 0.0, 0.8)])
def test_a_robot_that_is_moved_without_a_command_says_so_and_begins_nothing(push):
    robot = FaultyRobot()
    robot.ask(*STEP)
    robot.run(2).commanded_m = 0.0
    robot.base.traits.push = push
    robot.run(0.8)
    assert [e.state for e in robot.core.take_events()] == [MotionState.UNCOMMANDED_MOTION]
    assert robot.core.take_pushed() and not robot.core.take_pushed()  # a stop is said once more
    assert robot.ask(*STEP).state is MotionState.UNCOMMANDED_MOTION and robot.commanded_m == 0
    robot.base.traits.push = (0.0, 0.0, 0.0)
    assert robot.run(1.0).ask(*STEP).state is MotionState.REACHED


@pytest.mark.parametrize("push", [(0.03, 0.0, 0.0), (0.0, 0.03, 0.0), (0.0, 0.0, 0.1)])
def test_a_robot_that_sways_is_not_being_moved(push):
    robot = FaultyRobot()
    robot.ask(*STEP)
    robot.base.traits.push = push
    robot.run(5)
    assert robot.core.take_events() == []


@pytest.mark.parametrize("push", [(0.0, 0.5, 0.0), (-0.6, 0.0, 0.0), (0.8, 0.0, 0.0)])
def test_a_push_in_mid_motion_ends_it(push):
    robot = FaultyRobot()
    robot.send(CommandKind.MOVE, Motion(*FAR))
    robot.run(0.5).base.traits.push = push
    robot.run(1.5)
    assert not robot.core.is_moving and robot.core.take_events()[-1].state is not MotionState.REACHED


# -- cut short


@pytest.mark.parametrize(
    ("motion", "cut_s", "times", "noise_m", "stuck"),
    [
        (FAR, 0.15, 30, LIVELY, "all"),
        (FAR, 0.4, 8, IDEAL, ""),
        (TURN, 0.15, 30, IDEAL, ""),
        (TURN, 0.4, 8, LIVELY, ""),
        (TURN, 0.4, 8, IDEAL, "all"),
    ],
)
def test_motions_cut_short_again_and_again_count_together(motion, cut_s, times, noise_m, stuck):
    robot = FaultyRobot(noise_m=noise_m, stuck=stuck).fault("none" if stuck else "frozen, noisy")
    robot.insist(motion, times=times, pause_s=0.1, cut_s=cut_s)
    assert robot.commanded_m <= 0.45 and robot.commanded_rad <= 0.9
    assert gets_nothing(robot, motion)


@pytest.mark.parametrize(("cut_s", "delay_s"), [(0.15, 0.0), (0.15, 0.3), (0.3, 0.3), (0.5, 0.6)])
def test_motions_cut_short_of_a_base_that_moves_are_none_in_vain(cut_s, delay_s):
    robot = FaultyRobot(delay_s=delay_s)
    ends = robot.insist(FAR, TURN, times=8, pause_s=0.7, cut_s=cut_s)
    assert states(ends) == {MotionState.STOPPED} and robot.lost is None


# -- a sound base


@pytest.mark.parametrize("motion", [(1.0, 0.0), (0.0, 1.5)], ids=["straight", "turn"])
def test_a_motion_begun_right_after_one_that_was_cut_short_at_full_speed_is_carried_out(motion):
    robot = FaultyRobot()
    robot.ask(*motion, cut_s=1.2)
    assert robot.ask(*motion).state is MotionState.REACHED


@pytest.mark.parametrize(
    ("motion", "delay_s", "calibrated", "drops_zeros"),
    [
        (STEP, 0.0, 0.0, True),
        (TURN, 0.0, 0.0, False),
        (STEP, 0.15, 0.15, False),
        (TURN, 0.3, 0.0, True),
        (STEP, 0.3, 0.3, True),
        (TURN, 0.3, 0.3, False),
        (STEP, 0.6, 0.0, False),
        (STEP, 0.6, 0.6, True),
        (TURN, 0.6, 0.0, True),
        (TURN, 0.6, 0.6, False),
    ],
)
def test_a_late_base_ends_within_6_cm_and_5_degrees(motion, calibrated, delay_s, drops_zeros):
    robot = FaultyRobot({"actuation_delay_s": calibrated}, delay_s=delay_s, drops_zeros=drops_zeros)
    assert robot.ask(*motion).state is MotionState.REACHED
    pose = robot.run(1.0).base.pose
    assert pose.x == pytest.approx(motion[0], abs=0.06)
    assert math.degrees(pose.yaw) == pytest.approx(math.degrees(motion[1]), abs=5)


SHARES = st.floats(0.9, 1.1)
MOTIONS = st.sampled_from([FAR, STEP, TURN, (0.0, -THIRTY), (0.0, math.radians(7.5)), (0.0, math.pi / 4)])


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    linear_scale=SHARES,
    angular_scale=SHARES,
    delay_s=st.floats(0.0, 0.4),
    noise_m=st.sampled_from([0.0, 0.0002, 0.001]),
    drops_zeros=st.booleans(),
    motions=st.lists(MOTIONS, min_size=2, max_size=4),
    seed=st.integers(0, 99),
)
def test_a_sound_base_with_noise_slip_and_delay_is_never_called_faulty(motions, noise_m, seed, **traits):
    robot = FaultyRobot(noise_m=noise_m, seed=seed, **traits)
    for motion in motions:
        assert robot.ask(*motion).state is MotionState.REACHED
        assert robot.run(0.5).core.take_events() == [] and robot.lost is None


def test_a_gate_that_does_not_watch_responses_lets_the_executor_end_it():
    robot = FaultyRobot({"response_watched": False}, stuck="all")
    assert states(robot.insist(FAR, times=3)) == {MotionState.BLOCKED} and robot.lost is None

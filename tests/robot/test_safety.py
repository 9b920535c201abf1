"""The safety gate and the moving side around it, fault by fault, in simulated time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import ZERO, Pose, Velocity
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.gate import SafetyGate
from spec_vlm_nav.motion.limits import SafetyConfig
from tests.robot.moving_robot import DT, HERE, Robot, move, stand


def test_a_command_is_carried_out_and_reported():
    robot = Robot()
    robot.send(move())
    robot.run(4)
    assert robot.pose.x == pytest.approx(0.75, abs=0.04)
    assert robot.states == [MotionState.MOVING, MotionState.SETTLING, MotionState.REACHED]
    assert robot.core.status.done.distance_m == pytest.approx(0.75, abs=0.04)


def test_without_a_command_nothing_moves():
    assert Robot().run(1) == ZERO


@pytest.mark.parametrize("kind", [CommandKind.STOP, CommandKind.HOLD])
def test_stop_and_hold_are_zero_at_the_next_tick(kind):
    robot = Robot().moving()
    robot.send(stand(kind))
    assert robot.run(DT) == ZERO
    assert robot.states[-1] is MotionState.STOPPED


def test_stop_latches_until_the_next_instruction():
    robot = Robot().moving()
    robot.send(stand(CommandKind.STOP))
    robot.send(move(sequence=3))
    assert robot.run(0.5) == ZERO and robot.states[-1] is MotionState.REFUSED
    robot.send(move(sequence=4, instruction=2))
    assert robot.run(0.5).linear > 0


def test_after_hold_the_same_instruction_goes_on():
    robot = Robot().moving()
    robot.send(stand(CommandKind.HOLD))
    robot.run(0.2)
    robot.send(move(sequence=3))
    assert robot.run(0.5).linear > 0


@pytest.mark.parametrize("kind", [CommandKind.STOP, CommandKind.HOLD])
def test_a_stop_is_obeyed_even_when_it_comes_late_or_from_a_stranger(kind):
    robot = Robot().moving(sequence=5)
    robot.send(stand(kind, sequence=2))
    assert robot.run(DT) == ZERO
    robot.send(move(sequence=6, session=8))
    assert robot.run(0.4).linear > 0
    robot.send(stand(kind, sequence=99, session=7))
    assert robot.run(DT) == ZERO


def test_the_deadline_ends_a_motion_when_the_sender_has_died():
    robot = Robot()
    robot.send(move(deadline_s=0.8))
    assert robot.run(0.7).linear > 0.2
    assert robot.run(0.2) == ZERO
    assert robot.states[-1] is MotionState.EXPIRED


def test_a_deadline_far_away_is_capped():
    robot = Robot(max_command_s=0.5)
    robot.send(move(deadline_s=3600.0))
    robot.run(0.5)
    assert robot.run(0.1) == ZERO


def test_odometry_that_stops_ends_the_motion_within_its_timeout():
    robot = Robot(odom_timeout_s=0.3).moving()
    robot.odometry = False
    assert robot.run(0.3 + 2 * DT) == ZERO
    assert robot.states[-1] is MotionState.STALE_ODOM
    robot.odometry = True
    assert robot.run(1) == ZERO  # it does not go on by itself


@pytest.mark.parametrize("pose", [Pose(math.nan, 0, 0), Pose(0, math.inf, 0), Pose(0, 0, math.nan)])
def test_odometry_that_is_not_a_number_ends_the_motion(pose):
    robot = Robot().moving()
    robot.core.on_odometry(pose, robot.now)
    assert robot.core.tick(robot.now + DT) == ZERO
    assert robot.states[-1] is MotionState.STALE_ODOM


@pytest.mark.parametrize("far", [100.0, 1e308])
def test_a_jump_of_odometry_is_no_distance_that_was_covered(far):
    robot = Robot().moving()
    robot.core.on_odometry(Pose(far, 0, 0), robot.now)
    ended = robot.core.status
    assert ended.state is MotionState.STALE_ODOM and 0 < ended.done.distance_m < 0.3


def test_odometry_that_jumps_ends_the_motion_even_if_the_next_message_is_sound():
    robot = Robot().moving()
    robot.core.on_odometry(Pose(9, 9, 0), robot.now)
    robot.core.on_odometry(Pose(9, 9, 0), robot.now)
    assert robot.core.tick(robot.now + DT) == ZERO
    assert "jumped" in robot.core.status.reason


def test_before_the_first_odometry_nothing_is_accepted():
    core = MotionCore()
    core.on_command(move(), 0.0)
    assert core.take_events()[0].reason == "no odometry yet"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (move(distance=math.nan), "NaN or infinity"),
        (move(angle=math.inf, distance=0), "NaN or infinity"),
        (move(deadline_s=math.nan), "NaN or infinity"),
        (move(frame_age_s=math.nan), "NaN or infinity"),
        (move(distance=0.0), "either a distance or an angle"),
        (move(angle=0.3), "either a distance or an angle"),
        (move(distance=50.0), "limit of one command"),
        (move(distance=0, angle=6.0), "limit of one command"),
        (move(deadline_s=0.0), "deadline has passed"),
        (move(deadline_s=-1.0), "deadline has passed"),
        (move(frame_age_s=60.0), "frame 60.0 s old"),
        (move(frame_age_s=-1.0), "frame -1.0 s old"),
    ],
)
def test_an_unfit_command_is_refused_with_a_reason(command, why):
    robot = Robot()
    robot.send(command)
    assert why in robot.core.take_events()[0].reason
    assert robot.run(0.5) == ZERO


@pytest.mark.parametrize("sequence", [0, 4, 5])
def test_late_and_repeated_commands_do_not_move_the_robot(sequence):
    robot = Robot()
    robot.send(move(sequence=5))
    robot.run(4)
    before = robot.pose
    robot.send(move(sequence=sequence))
    robot.run(1)
    assert robot.pose == before and robot.states[-1] is MotionState.REFUSED


def test_a_refused_command_leaves_the_running_one_alone():
    robot = Robot().moving(sequence=5)
    robot.send(move(sequence=4, angle=1.0, distance=0))
    assert robot.run(0.1).linear > 0


@pytest.mark.parametrize("newer", [{"sequence": 6}, {"sequence": 1, "session": 8}])
def test_a_newer_command_that_is_unfit_ends_the_older_one_which_nobody_stands_behind_any_more(newer):
    robot = Robot().moving(sequence=5)
    robot.send(move(deadline_s=0.0, **newer))
    assert robot.run(DT) == ZERO and robot.states == [
        MotionState.MOVING,
        MotionState.STOPPED,
        MotionState.REFUSED,
    ]


def test_a_command_of_an_instruction_that_is_over_is_refused():
    robot = Robot()
    robot.send(move(sequence=1, instruction=3))
    robot.send(move(sequence=2, instruction=2))
    assert robot.states == [MotionState.MOVING, MotionState.REFUSED]


def test_a_restarted_sender_takes_over_and_the_old_one_stays_out():
    robot = Robot()
    robot.send(move(sequence=900, session=7))
    robot.send(move(sequence=1, session=8))
    robot.send(move(sequence=901, session=7))
    assert robot.states == [MotionState.MOVING, MotionState.MOVING, MotionState.REFUSED]


def test_velocity_is_clamped_and_slewed_up_but_zero_is_immediate():
    limits = {"max_linear": 0.4, "max_angular": 0.5, "linear_acceleration": 1.0}
    gate = SafetyGate(SafetyConfig(**limits, response_watched=False))
    gate.hear_odometry(HERE, 0.0)
    gate.filter(ZERO, 0.0)
    assert gate.admit(move(), 0.0) is None
    sent = []
    for tick in range(1, 15):
        gate.hear_odometry(HERE, tick * DT)
        sent.append(gate.filter(Velocity(9.0, -9.0), tick * DT))
    rises = [b.linear - a.linear for a, b in zip([ZERO, *sent], sent, strict=False)]
    assert max(rises) <= 1.0 * DT + 1e-9
    assert sent[-1] == Velocity(0.4, -0.5)
    gate.end_motion()
    assert gate.filter(Velocity(9.0, 9.0), 15 * DT) == ZERO


def test_a_stalled_timer_does_not_earn_a_big_step():
    gate = SafetyGate(SafetyConfig(odom_timeout_s=60.0))
    gate.hear_odometry(HERE, 0.0)
    gate.filter(ZERO, 0.0)
    gate.admit(move(), 0.0)
    assert gate.filter(Velocity(0.5, 0.0), 3.0).linear <= 0.1 + 1e-9


@pytest.mark.slow
@given(
    linear=st.floats(allow_nan=True, allow_infinity=True),
    angular=st.floats(allow_nan=True, allow_infinity=True),
    dt=st.floats(0, 1),
)
def test_whatever_is_asked_for_what_goes_out_is_finite_and_within_limits(linear, angular, dt):
    gate = SafetyGate(SafetyConfig(odom_timeout_s=5.0))
    gate.hear_odometry(HERE, 0.0)
    gate.filter(ZERO, 0.0)
    gate.admit(move(), 0.0)
    sent = gate.filter(Velocity(linear, angular), dt)
    assert abs(sent.linear) <= gate.config.max_linear and abs(sent.angular) <= gate.config.max_angular
    if not (math.isfinite(linear) and math.isfinite(angular)):
        assert sent == ZERO

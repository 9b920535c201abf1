"""The executor that has Nav2 drive, with action clients of the test's own, in simulated time."""

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import Motion, Pose
from spec_vlm_nav.motion.backends.nav2 import ANSWER_S, GoalReport, GoalState, Nav2Executor
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.executor import ExecutorConfig
from spec_vlm_nav.motion.limits import SafetyConfig
from tests.robot.moving_robot import DT, Robot, move, stand, turn


class FakeGoals:
    """Keeps what was sent; the test says where the goal stands."""

    def __init__(self, unsent=""):
        self.sent, self.canceled, self.unsent = [], 0, unsent
        self.now = GoalReport(GoalState.SENT)

    def send(self, motion, speed, allowance_s):
        if not self.unsent:
            self.sent.append((motion, speed, allowance_s))
        return self.unsent

    def cancel(self):
        self.canceled += 1

    def report(self):
        return self.now


@pytest.fixture
def goals():
    return FakeGoals()


def robot(goals, **config):
    return Robot(Nav2Executor(goals), **config)


def driving(goals, **config):
    found = robot(goals, **config).send(move())
    goals.now = GoalReport(GoalState.ACCEPTED)
    found.run(0.3)
    assert found.core.status.state is MotionState.MOVING
    return found


def test_a_motion_is_one_goal_with_the_command_s_speed_and_the_time_to_its_deadline(goals):
    found = driving(goals, max_linear=0.4)
    motion, speed, allowance = goals.sent[0]
    assert (motion, speed) == (Motion(0.75), 0.4) and allowance == pytest.approx(4.0)
    goals.now = GoalReport(GoalState.SUCCEEDED)
    found.run(0.3)
    assert found.states == [MotionState.MOVING, MotionState.SETTLING, MotionState.REACHED]
    assert len(goals.sent) == 1 and goals.canceled == 0


def test_it_never_asks_the_gate_for_a_velocity(goals):
    assert driving(goals).velocity.linear == 0


def test_an_unverified_drive_is_asked_for_at_its_own_speed(goals):
    robot(goals).send(move(unverified=True))
    assert goals.sent[0][1] == 0.15


@pytest.mark.parametrize(
    ("report", "state", "said"),
    [
        (GoalReport(GoalState.REJECTED), MotionState.REFUSED, "rejected"),
        (GoalReport(GoalState.CANCELED), MotionState.REFUSED, "another client canceled"),
        (GoalReport(GoalState.ABORTED), MotionState.BLOCKED, "gave up"),
        (GoalReport(GoalState.ABORTED, "COLLISION_AHEAD"), MotionState.COLLISION_AHEAD, "an obstacle ahead"),
        (GoalReport(GoalState.ABORTED, "TIMEOUT"), MotionState.EXPIRED, "in time"),
        (GoalReport(GoalState.ABORTED, "TF_ERROR", "no odom"), MotionState.REFUSED, "TF_ERROR: no odom"),
    ],
)
def test_a_goal_that_fails_ends_the_motion_with_the_reason(goals, report, state, said):
    found = driving(goals)
    goals.now = report
    found.run(DT)
    last = found.events[-1]
    assert last.state is state and said in last.reason
    assert not found.core.is_moving


def test_a_server_that_is_not_there_is_said_at_once(goals):
    goals.unsent = "Nav2's action server spin is not there"
    found = robot(goals).send(turn())
    found.run(DT)
    last = found.events[-1]
    assert last.state is MotionState.REFUSED and "spin is not there" in last.reason


def test_a_server_that_does_not_answer_is_given_up_and_told_to_cancel(goals):
    found = robot(goals).send(move())
    found.run(ANSWER_S - 2 * DT)
    assert found.core.is_moving
    found.run(4 * DT)
    last = found.events[-1]
    assert last.state is MotionState.REFUSED and "not answered" in last.reason and goals.canceled == 1


def by_stop(found):
    found.send(stand(CommandKind.STOP))


def by_hold(found):
    found.send(stand(CommandKind.HOLD))


def by_hand(found):
    found.core.stop()


def by_odometry(found):
    found.core.on_odometry(Pose(9, 9, 0), found.now)


def by_deadline(found):
    found.run(4.0)


@pytest.mark.parametrize("way", [by_stop, by_hold, by_hand, by_odometry, by_deadline])
def test_whatever_ends_the_motion_cancels_the_goal_at_once(goals, way):
    found = driving(goals)
    way(found)
    assert goals.canceled == 1 and not found.core.is_moving
    goals.now = GoalReport(GoalState.SUCCEEDED)
    found.run(0.5)
    assert MotionState.REACHED not in found.states  # what comes of it later is nobody's


def test_the_next_motion_cancels_the_one_under_way_first(goals):
    found = driving(goals)
    found.send(turn(sequence=2))
    assert goals.canceled == 1 and [m for m, _, _ in goals.sent] == [Motion(0.75), Motion(0.0, 0.7)]


def test_a_lowered_limit_ends_a_faster_goal_and_holds_for_the_next(goals):
    found = driving(goals)
    found.core.configure(ExecutorConfig(), SafetyConfig(max_linear=0.2))
    found.run(DT)
    last = found.events[-1]
    assert last.state is MotionState.EXPIRED and "lowered" in last.reason and goals.canceled == 1
    found.send(move(sequence=2))
    assert goals.sent[-1][1] == 0.2
    found.core.configure(ExecutorConfig(), SafetyConfig(max_linear=0.2, max_angular=0.1))
    found.run(DT)
    assert found.core.is_moving  # a limit of turns does not concern it

"""The loop around the core: stops go out at once, velocities at ticks, and every change of state is told."""

import math

import pytest

from spec_vlm_nav.common.codes import MotionState
from spec_vlm_nav.common.geometry import ZERO, Pose
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.loop import MotionLoop
from tests.robot.moving_robot import HERE, move, stand

DT = 1 / 30


class Loop:
    """A core that moves; `sent` holds velocities and "stop", `told` the states, in order."""

    def __init__(self):
        self.now, self.sent, self.told = 100.0, [], []
        self.core = MotionCore()
        publish = lambda told: self.told.append(told.status.state)  # noqa: E731
        self.loop = MotionLoop(self.core, self, publish, 1 / DT, lambda: self.now, lambda: self.now)
        self.core.on_odometry(HERE, self.now)
        self.loop.command(move())
        for _ in range(3):
            self.now += DT
            self.core.on_odometry(HERE, self.now)
            self.loop.tick()
        assert self.sent[-1] != ZERO and self.told[-1] is MotionState.MOVING
        self.sent.clear()
        self.told.clear()

    def send(self, velocity, rest):
        self.sent.append(velocity)

    def stop(self):
        self.sent.append("stop")
        return True


def test_what_ends_the_motion_between_two_ticks_stops_the_robot_at_once_and_is_told_once():
    robot = Loop()
    robot.core.on_odometry(Pose(math.nan, 0.0, 0.0), robot.now)
    robot.loop.follow()
    robot.loop.follow()
    assert robot.sent == ["stop"] and robot.told == [MotionState.STALE_ODOM]


def test_what_is_heard_and_changes_nothing_sends_nothing():
    robot = Loop()
    robot.core.on_odometry(HERE, robot.now)
    robot.loop.follow()
    assert robot.sent == robot.told == []


@pytest.mark.parametrize("kind", [CommandKind.STOP, CommandKind.HOLD])
def test_a_command_to_stand_goes_out_once_without_a_tick(kind):
    robot = Loop()
    robot.loop.command(stand(kind))
    robot.loop.follow()
    assert robot.sent == ["stop"] and robot.told == [MotionState.STOPPED]


def test_an_operators_stop_goes_out_without_a_tick():
    robot = Loop()
    robot.core.stop()
    robot.loop.stand()
    robot.loop.follow()
    assert robot.sent == ["stop"] and robot.told == [MotionState.STOPPED]

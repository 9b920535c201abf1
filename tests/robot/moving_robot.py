"""A MotionCore on an ideal base in simulated time, shared by the tests of the moving side."""

import math

from spec_vlm_nav.common.geometry import ZERO, Motion, Pose
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.limits import SafetyConfig
from spec_vlm_nav.motion.watchdogs import Supervision

DT = 1 / 30
HERE = Pose(0, 0, 0)


def move(sequence=1, instruction=1, session=7, distance=0.75, angle=0.0, **more):
    more = {"deadline_s": 4.0, "frame_age_s": 0.1, **more}
    return Command(CommandKind.MOVE, session, instruction, sequence, Motion(distance, angle), **more)


def turn(**more):
    return move(distance=0.0, angle=0.7, **more)


def stand(kind, sequence=2, instruction=1, session=7):
    return Command(kind, session, instruction, sequence)


class Robot:
    """Odometry at every tick unless switched off; `supervise` makes the deciding side tell of itself at every tick."""

    def __init__(self, executor=None, **config):
        self.core = MotionCore(safety=SafetyConfig(**config), executor=executor)
        self.now, self.pose, self.odometry, self.told = 100.0, HERE, True, None
        self.velocity = ZERO
        self.run(0.1)

    def supervise(self, session=7, **told):
        self.told = Supervision(session, **told)
        return self

    def run(self, seconds):
        for _ in range(round(seconds / DT)):
            self.now += DT
            yaw = self.pose.yaw + self.velocity.angular * DT
            self.pose = Pose(
                self.pose.x + self.velocity.linear * DT * math.cos(yaw),
                self.pose.y + self.velocity.linear * DT * math.sin(yaw),
                yaw,
            )
            if self.odometry:
                self.core.on_odometry(self.pose, self.now)
            if self.told is not None:
                self.core.on_supervision(self.told, self.now)
            self.velocity = self.core.tick(self.now)
        return self.velocity

    def send(self, command):
        self.core.on_command(command, self.now)
        return self

    def forge(self, command, why="its nonce is not the next of its session"):
        """Send what does not come from the sender of its session."""
        self.core.on_command(command, self.now, why)
        return self

    def moving(self, **kwargs):
        self.send(move(**kwargs))
        assert self.run(0.4).linear > 0.1
        return self

    @property
    def events(self):
        return self.core.take_events()

    @property
    def states(self):
        return [event.state for event in self.events]

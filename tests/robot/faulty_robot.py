"""motion_node's parts at their default parameters on a base and an odometry with faults, in simulated time."""

import random

from spec_vlm_nav.common.geometry import Motion, Velocity
from spec_vlm_nav.common.status import UNDER_WAY
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.parameters import MOTION, executor_config, safety_config, stop_config
from spec_vlm_nav.motion.stopping import TwistStops
from spec_vlm_nav.motion.watchdogs import Supervision
from tests.helpers.imperfect_base import Base, BaseTraits, HalfPlaneWall, Odometry, OdometryFault
from tests.helpers.simulated_base import reading_of

STEP_S = 1 / 60
DEFAULTS = {p.name: p.default for p in MOTION}


class FaultyRobot:
    """`parameters` of motion_node; the other words are traits of the base. Ticks and odometry come at 30 Hz.

    commanded_m, commanded_rad: what went out; pushes: motions that got anything to go out at all.
    """

    def __init__(self, parameters=None, noise_m=0.0002, walls=(), seed=0, **traits):
        values = {**DEFAULTS, **(parameters or {})}
        self.core = MotionCore(executor_config(values), safety_config(values))
        self.stops = TwistStops(stop_config(values))
        self.base = Base(BaseTraits(**traits), [HalfPlaneWall(*wall) for wall in walls])
        self.odometry = Odometry(random.Random(seed), noise_m)
        self.now, self.steps, self.sequence, self.instruction = 0.0, 0, 0, 1
        self.commanded_m = self.commanded_rad = 0.0
        self.said = Velocity()  # what was published last
        self.silent_s = 0.0  # since when nothing is published
        self.run(1.2)  # long enough to tell a lively odometry

    def run(self, seconds):
        for _ in range(round(seconds / STEP_S)):
            self.steps += 1
            self.now = self.steps * STEP_S
            self.base.step(self.now)
            if self.steps % 2 == 0:
                heard = self.odometry.message(self.base.pose, self.now)
                if heard is not None:
                    self.core.on_odometry(reading_of(heard), self.now)
                self.core.on_supervision(Supervision(7, 0.05, 0.05), self.now)
                self._tick()
        return self

    def _tick(self):
        velocity = self.core.tick(self.now)
        self.commanded_m += abs(velocity.linear) * 2 * STEP_S
        self.commanded_rad += abs(velocity.angular) * 2 * STEP_S
        said = self.stops.velocity(velocity, self.core.rest(self.now), self.now)
        self.silent_s = self.silent_s + 2 * STEP_S if said is None else 0.0
        if said is not None:
            self.said = said
            self.base.command(said.linear, said.angular, self.now)

    def ask(self, distance=0.0, angle=0.0, cut_s=8.0, **more):
        """Ask for one motion; returns the report of its end. Ended by HOLD after `cut_s`."""
        self.core.take_events()
        self.send(CommandKind.MOVE, Motion(distance, angle), **more)
        until = self.now + cut_s
        while self.core.is_moving and self.now < until:
            self.run(2 * STEP_S)
        if self.core.is_moving:
            self.send(CommandKind.HOLD)
        return next(e for e in reversed(self.core.take_events()) if e.state not in UNDER_WAY)

    def send(self, kind, motion=Motion(), session=7, **more):
        self.sequence += 1
        fields = {"deadline_s": 8.0, "frame_age_s": 0.1, **more}
        command = Command(kind, session, self.instruction, self.sequence, motion, **fields)
        self.core.on_command(command, self.now)

    def insist(self, *motions, times, pause_s=0.3, cut_s=8.0):
        """Ask for these motions again and again; returns the reports of their ends."""
        ends = []
        for _ in range(times):
            for distance, angle in motions:
                ends.append(self.ask(distance, angle, cut_s))
                self.run(pause_s)
        return ends

    def fault(self, fault, scale=1.0):
        self.odometry.fault, self.odometry.scale = OdometryFault(fault), scale
        return self

    def reset(self):
        """As ~/reset and a new instruction."""
        self.core.reset()
        self.instruction += 1
        return self

    @property
    def lost(self):
        return self.core.gate.monitor.lost

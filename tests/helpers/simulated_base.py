# SPDX-License-Identifier: Apache-2.0
"""Calibrations and motions of a simulated base in simulated time, with the robot's real code and without ROS.

Ticks and odometry messages come at 30 Hz, each with its own phase, drawn from a seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from navsim.geometry import movement
from spec_vlm_nav.common.geometry import Motion, Pose, Velocity
from spec_vlm_nav.common.parameters import Value
from spec_vlm_nav.common.status import UNDER_WAY
from spec_vlm_nav.motion.command import Command, CommandKind
from spec_vlm_nav.motion.core import MotionCore
from spec_vlm_nav.motion.parameters import executor_config, safety_config, stop_config
from spec_vlm_nav.motion.stopping import TwistStops
from spec_vlm_nav.motion.watchdogs import OdometryReading
from specnav.calibrate.config import CalibrateConfig
from specnav.calibrate.core.course import CalibrationRun
from specnav.calibrate.core.result import DEFAULTS
from tests.helpers.imperfect_base import Base, BaseTraits, Odometry, OdometryMessage

STEP_S, RATE_HZ = 0.005, 30.0
BEGIN_S, END_S, LONGEST_S = 2.5, 3.5, 10.0
UNWATCHED = {"supervisor_timeout_s": 0.0, "camera_timeout_s": 0.0, "verifier_timeout_s": 0.0}


@dataclass
class SimulatedBase:
    """A base, its odometry, and a clock."""

    traits: BaseTraits
    seed: int = 0
    base: Base = field(init=False)
    odometry: Odometry = field(init=False)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.base, self.odometry = Base(self.traits), Odometry(random.Random(self.seed))

    def run(self, seconds: float = math.inf) -> Iterator[tuple[bool, bool]]:
        """Let time pass; yields whether a tick and whether an odometry message is due."""
        rng, period, end = random.Random(self.seed + 1), 1 / RATE_HZ, self.now + seconds
        tick, message = self.now + rng.random() * period, self.now + rng.random() * period
        while self.now < end:
            self.now += STEP_S
            self.base.step(self.now)
            is_tick, is_message = self.now >= tick, self.now >= message
            tick += period * is_tick
            message += period * is_message
            yield is_tick, is_message


def reading_of(message: OdometryMessage) -> OdometryReading:
    """The odometry message as the robot's code receives it."""
    pose = Pose(message.pose.x, message.pose.y, message.pose.yaw)
    return OdometryReading(pose, message.stamp, message.frame, message.base_frame)


def calibrate(
    world: SimulatedBase, config: CalibrateConfig | None = None, style: str = "epsilon"
) -> CalibrationRun:
    """Carry out a whole calibration; every step is approved at once."""
    course = CalibrationRun(replace(config or CalibrateConfig(), stop_style=style))
    stops = {
        name: TwistStops(stop_config({**DEFAULTS, "stop_style": name})) for name in ("zero", "epsilon", style)
    }
    for is_tick, is_message in world.run(600.0):
        if is_message and (message := world.odometry.message(world.base.pose, world.now)):
            course.hear(reading_of(message), world.now)
        if not is_tick:
            continue
        if course.next is not None and course.guard.is_ready:
            course.allow(world.now)
        said = stops[course.style].velocity(course.tick(world.now), course.rest(world.now), world.now)
        if said is not None:
            world.base.command(said.linear, said.angular, world.now)
        if course.is_over:
            return course
    raise AssertionError("a calibration that takes ten minutes")


@dataclass(frozen=True)
class MotionOutcome:
    """How a motion ended: its state, and the metres and radians by which the base itself missed the goal."""

    state: str
    reason: str
    missed_m: float
    missed_rad: float


def carry_out(world: SimulatedBase, motion: Motion, values: Mapping[str, Value]) -> MotionOutcome:
    """Carry out one motion with MotionCore and motion_node's parameters, from standstill to standstill."""
    given = {**DEFAULTS, **values, **UNWATCHED}
    core, stops = MotionCore(executor_config(given), safety_config(given)), TwistStops(stop_config(given))
    origin, sent_at, ended_at = world.base.pose, math.inf, math.inf
    begin = world.now + BEGIN_S
    for is_tick, is_message in world.run(BEGIN_S + LONGEST_S + END_S):
        if is_message and (message := world.odometry.message(world.base.pose, world.now)):
            core.on_odometry(reading_of(message), world.now)
        if is_tick:
            if world.now >= begin and sent_at == math.inf:
                sent_at, origin = world.now, world.base.pose
                command = Command(
                    CommandKind.MOVE, 1, 1, 1, motion, deadline_s=LONGEST_S - 1, frame_age_s=0.1
                )
                core.on_command(command, world.now)
            said: Velocity | None = stops.velocity(core.tick(world.now), core.rest(world.now), world.now)
            if said is not None:
                world.base.command(said.linear, said.angular, world.now)
            if sent_at < math.inf and ended_at == math.inf and core.status.state not in UNDER_WAY:
                ended_at = world.now
        if world.now > ended_at + END_S:
            break
    ahead, _, turned = movement(origin, world.base.pose)
    return MotionOutcome(
        core.status.state.name,
        core.status.reason,
        ahead - motion.distance_m,
        turned - motion.angle_rad,
    )

# SPDX-License-Identifier: Apache-2.0
"""Runs one drill on the running stack: prepares the moment, injects the fault, listens, repairs and judges."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from spec_vlm_nav_interfaces.msg import MotionCommand

from spec_vlm_nav.common.codes import ErrorCode, LinkState, MotionState
from spec_vlm_nav.common.status import GOING_ON
from spec_vlm_nav.motion.command import CommandKind
from specnav.drill.definitions import (
    Drill,
    ExpectedReaction,
    ExpectedRecovery,
    HeardReason,
    Moment,
    TimeBound,
    Trace,
)
from specnav.drill.faults import link_cut
from specnav.drill.judging import judge
from specnav.drill.results import DrillRun
from specnav.errors import HarnessError
from specnav.supervise.probe import Probe, ProbedMessage
from specnav.supervise.robot_stack import (
    CMD_VEL,
    COMMAND,
    IMAGE,
    METRICS,
    ODOM,
    STATUS,
    SUPERVISION,
    Stack,
    speed,
)

MOMENT_S = 25.0
FRESH_S = 0.25  # a motion that began this recently may be chosen for the fault
AFTER_BOUND_S = 0.4
FOLLOWS_S = 0.3  # until odometry follows cmd_vel
ENOUGH_S = 0.25  # a motion must last this much longer than the bound
UP_TO_SPEED_S = 0.3
ALIVE_S = 3.0
STILL_GOING = tuple(state.name for state in GOING_ON)
OWN_END = ("REACHED", "BLOCKED", "EXPIRED")
POLL_S = 0.002
FILE_POLICY = "auto"  # the setting in config/robot.yaml
REASONS: Mapping[str, Callable[[Any], tuple[str, str]]] = {
    STATUS: lambda message: (MotionState(message.state).name, message.reason),
    METRICS: lambda message: (ErrorCode(message.error_code).name, message.error),
    COMMAND: lambda message: (CommandKind(message.kind).name, message.text),
    SUPERVISION: lambda message: (LinkState(message.link).name, ""),
}
"""By topic: name and text of the reason in a message."""


class Inconclusive(Exception):
    """The robot was not in the state for which the fault is meant; try again."""


class FaultInjector:
    """Runs drills on one stack, one after another, each in a new room."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._terms: dict[tuple[str, str], float] = {}
        self._policy = FILE_POLICY
        self._broken = False
        self.began = time.monotonic()

    def bound_s(self, bound: TimeBound) -> float:
        """A bound in seconds, from the nodes' current parameters. Raises HarnessError."""
        total = bound.seconds
        for term in bound.terms:
            key = (term.node, term.parameter)
            if key not in self._terms:
                value = self._stack.probe.get_parameter(*key)
                if not isinstance(value, float):
                    raise HarnessError(f"{term.node} has no parameter {term.parameter}: the bound is unknown")
                self._terms[key] = value
            total += self._terms[key]
        return total

    def run(self, drill: Drill, number: int, attempts: int = 3) -> DrillRun:
        """One run; repeated if the robot did not reach the moment. Raises HarnessError."""
        for attempt in itertools.count(1):
            began = time.monotonic()
            try:
                result = self._once(drill, number)
            except Inconclusive as error:
                if attempt >= attempts:
                    raise HarnessError(f"{drill.name}: {error} ({attempts} attempts)") from error
                continue
            finally:
                wall_s = time.monotonic() - began
            return msgspec.structs.replace(result, at_s=began - self.began, wall_s=wall_s)
        raise AssertionError

    def _once(self, drill: Drill, number: int) -> DrillRun:
        stack, bound_s = self._stack, self.bound_s(drill.bound)
        stack.link.open()
        stack.start_what_is_down()
        stack.cancel()
        self._use_policy(drill.policy)
        stack.reset(absent=not drill.present, ahead=drill.present and drill.needs == "forward")
        lasts_s = bound_s + AFTER_BOUND_S if drill.lasts_s is None else drill.lasts_s
        self._bring_to(drill, bound_s)
        try:
            with drill.fault(stack) as struck:
                self._let_pass(drill, struck, lasts_s)
                ended = time.monotonic()
        finally:
            stack.link.open()
        instructed: float | None = None
        if drill.recovery is ExpectedRecovery.NEXT_INSTRUCTION:
            instructed = stack.instruct(stack.instruction)
        since = instructed if instructed is not None else ended
        self._wait_for_motion(since, drill.within_s)
        if drill.by_odometry:
            time.sleep(FOLLOWS_S)
        problems = self._dead_or_hung()
        trace = self._trace(drill, struck, ended, instructed)
        self._check_moment(drill, trace, bound_s)
        return judge(drill, number, trace, bound_s, problems)

    def _use_policy(self, policy: str) -> None:
        """Set vlm_nav_node's exploration policy; "": that of its parameter file."""
        wanted = policy or FILE_POLICY
        if wanted != self._policy:
            self._stack.probe.set_parameters("vlm_nav_node", exploration=wanted)
            self._policy = wanted

    # -- reaching the moment

    def _bring_to(self, drill: Drill, bound_s: float) -> None:
        stack = self._stack
        if drill.moment.point is not None:
            reached = stack.link.shut_at(drill.moment.point)
            stack.instruct(stack.instruction)
            if not reached.wait(MOMENT_S):
                raise Inconclusive(f"no decision got to {drill.moment.value}")
            return
        began = stack.instruct(stack.instruction)
        if drill.moment is Moment.SETTLING:
            self._poll(lambda: self._settles(began), "a motion that settles")
            return
        lasting = (
            bound_s + ENOUGH_S if drill.reaction is ExpectedReaction.STOPS and not drill.by_odometry else 0.5
        )
        self._poll(
            lambda: self._moves(began, lasting, drill.needs), f"a {drill.needs or 'motion'} that lasts"
        )
        if drill.by_odometry:
            time.sleep(UP_TO_SPEED_S)

    def _poll(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + MOMENT_S
        while not done():
            if time.monotonic() > deadline:
                raise Inconclusive(f"{what} did not come within {MOMENT_S:g} s")
            time.sleep(POLL_S)

    def _settles(self, since: float) -> bool:
        last = self._stack.probe.last(STATUS)
        return last is not None and last.at >= since and last.message.state == MotionState.SETTLING.value

    def _moves(self, since: float, lasting_s: float, kind: str) -> bool:
        """Whether a motion of a kind that takes this long has just begun."""
        probe = self._stack.probe
        command, velocity = probe.last(COMMAND), probe.last(CMD_VEL)
        if command is None or velocity is None or command.at < since:
            return False
        if command.message.kind != MotionCommand.MOVE or self._lasts(command) < lasting_s:
            return False
        if kind and kind != ("turn" if command.message.angle_rad else "forward"):
            return False
        return speed(velocity) > 0 and velocity.at > command.at > time.monotonic() - FRESH_S

    def _lasts(self, command: ProbedMessage) -> float:
        motion = command.message
        return (
            abs(motion.distance_m) / self._stack.max_linear + abs(motion.angle_rad) / self._stack.max_angular
        )

    # -- during the fault

    def _let_pass(self, drill: Drill, struck: float, lasts_s: float) -> None:
        if drill.moment.point is not None and drill.fault is not link_cut:
            time.sleep(drill.release_s)
            self._stack.link.open()
        time.sleep(max(0.0, struck + lasts_s - time.monotonic()))

    def _wait_for_motion(self, since: float, within_s: float) -> None:
        probe = self._stack.probe
        deadline = since + within_s
        while time.monotonic() < deadline and not any(speed(h) > 0 for h in probe.heard(CMD_VEL, since)):
            time.sleep(0.02)

    def _dead_or_hung(self) -> list[str]:
        """Processes that have ended, and nodes that do not respond any more."""
        found = [f"{process.name} has ended" for process in self._stack.robot if not process.is_up]
        for node in ("vlm_nav_node", "motion_node", "navsim"):
            try:
                self._stack.probe.get_parameter(node, "use_sim_time", ALIVE_S)
            except HarnessError:
                found.append(f"{node} does not respond")
        return found

    # -- evaluation

    def _trace(self, drill: Drill, struck: float, ended: float, instructed: float | None) -> Trace:
        probe, since = self._stack.probe, struck - 1.0
        if drill.by_odometry:
            speeds = [
                (h.at, max(abs(h.message.twist.twist.linear.x), abs(h.message.twist.twist.angular.z)))
                for h in probe.heard(ODOM, since)
            ]
        else:
            speeds = [(h.at, speed(h)) for h in probe.heard(CMD_VEL, since)]
        frames = [h.at for h in probe.heard(IMAGE, since - 1.0)]
        back = min((h.message.linear.x for h in probe.heard(CMD_VEL, since)), default=0.0)
        return Trace(struck, ended, speeds, _said(probe, since), frames, instructed, max(0.0, -back))

    def _check_moment(self, drill: Drill, trace: Trace, bound_s: float) -> None:
        """Raise Inconclusive if the motion ended by itself before the fault could show."""
        if drill.moment is not Moment.MOVING or drill.reaction is not ExpectedReaction.STOPS:
            return
        first = next(
            (
                s
                for s in trace.said
                if s.at >= trace.struck and s.topic == STATUS and s.name not in STILL_GOING
            ),
            None,
        )
        until = min(trace.ended, trace.struck + bound_s)
        if first is not None and drill.bound.terms and first.name in OWN_END and first.at < until:
            raise Inconclusive(f"the motion had ended by itself ({first.name})")


def _said(probe: Probe, since: float) -> list[HeardReason]:
    said = [
        HeardReason(h.at, topic, *tell(h.message))
        for topic, tell in REASONS.items()
        for h in probe.heard(topic, since)
    ]
    return sorted(said, key=lambda one: one.at)

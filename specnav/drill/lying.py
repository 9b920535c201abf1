# SPDX-License-Identifier: Apache-2.0
"""Drills of a base, driver or odometry that misbehaves or misreports; each under both exploration policies.

Early action and prefetch are on, as in config/robot.yaml.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from specnav.drill import faults_words as words
from specnav.drill.definitions import (
    GRACE_S,
    Drill,
    ExpectedReaction,
    ExpectedRecovery,
    Reason,
    Term,
    TimeBound,
)
from specnav.drill.faults import BrokenRobot, Value
from specnav.supervise.robot_stack import STATUS

MOVER = "motion_node"
AT_ONCE = TimeBound()
OPERATOR = TimeBound(seconds=0.3)
RESPONSE = TimeBound((Term(MOVER, "response_timeout_s"),), 0.8, "0.6 s to compare, 200 ms")
STOPPED_BY_BASE = TimeBound(
    seconds=0.25 / 1.5 + 2 * GRACE_S, note="slowing down from 0.25 m/s at 1.5 m/s2, 200 ms"
)
NOTHING_WRONG = tuple(Reason(STATUS, name) for name in ("BLOCKED", "NO_RESPONSE", "WRONG_RESPONSE"))
AGAINST = (Reason(STATUS, "BLOCKED"), Reason(STATUS, "NO_RESPONSE"))
WRONG = (Reason(STATUS, "WRONG_RESPONSE"),)
PUSHED = (*WRONG, Reason(STATUS, "BLOCKED"), Reason(STATUS, "UNCOMMANDED_MOTION"))

_ODOMETRY_SOUND: dict[str, Value] = {"odom_fault": "none"}
_BASE_SOUND: dict[str, Value] = {"base_fault": "none"}
_HALTS, _NEXT = ExpectedReaction.HALTS, ExpectedRecovery.NEXT_INSTRUCTION
_lie = partial(Drill, within_s=15.0, present=True)
_LIES = (
    _lie(
        "odometry-frozen",
        "odometry repeats one pose with new stamps",
        BrokenRobot({"odom_fault": "frozen"}, _ODOMETRY_SOUND),
        RESPONSE,
        (Reason(STATUS, "NO_RESPONSE"),),
    ),
    _lie(
        "base-stuck",
        "the base does not move forward",
        BrokenRobot({"base_fault": "stuck"}, _BASE_SOUND),
        RESPONSE,
        AGAINST,
        _HALTS,
        lasts_s=2.5,
        needs="forward",
    ),
    _lie(
        "base-delayed",
        "every velocity takes effect 0.6 s later",
        BrokenRobot({"command_delay_s": 0.6}, {"command_delay_s": 0.0}),
        AT_ONCE,
        reaction=ExpectedReaction.GOES_ON,
        lasts_s=6.0,
        never=NOTHING_WRONG,
        present=False,
    ),
    _lie(
        "zeros-dropped",
        "the driver drops zeros; the operator says stop",
        words.zeros_dropped,
        STOPPED_BY_BASE,
        (Reason(STATUS, "STOPPED"),),
        recovery=_NEXT,
        lasts_s=2.0,
        by_odometry=True,
        needs="forward",
    ),
    _lie(
        "odometry-scaled",
        "odometry reports three times the distance",
        BrokenRobot({"odom_fault": "scaled", "odom_scale": 3.0}, _ODOMETRY_SOUND, reset=True),
        RESPONSE,
        WRONG,
        _HALTS,
        _NEXT,
        lasts_s=4.0,
    ),
    _lie(
        "odometry-mirrored",
        "odometry reports turns in the opposite direction",
        BrokenRobot({"odom_fault": "mirrored"}, _ODOMETRY_SOUND, reset=True),
        RESPONSE,
        WRONG,
        _HALTS,
        _NEXT,
        lasts_s=4.0,
        needs="turn",
    ),
    _lie(
        "pushed",
        "the robot is pushed aside at 0.4 m/s",
        BrokenRobot({"base_fault": "pushed"}, _BASE_SOUND),
        RESPONSE,
        PUSHED,
        lasts_s=1.6,
    ),
    _lie(
        "rear-blocked",
        "the base moves neither forward nor back: backing off would be blind",
        BrokenRobot({"base_fault": "rear_blocked"}, _BASE_SOUND),
        RESPONSE,
        AGAINST,
        _HALTS,
        lasts_s=2.5,
        needs="forward",
    ),
    _lie(
        "estop-best-effort",
        "an emergency stop published best effort, and an instruction a second later",
        words.emergency_stop,
        OPERATOR,
        (Reason(STATUS, "ESTOPPED"),),
        recovery=_NEXT,
        lasts_s=3.0,
        prompt=True,
    ),
)


def lying_bases() -> list[Drill]:
    """The drills of a misbehaving base, driver or odometry, under each policy."""
    found = []
    for policy in ("none", "frontier_search"):
        tested = policy == "frontier_search"
        for lie in _LIES:
            drill = replace(lie, name=f"{lie.name}-{policy.replace('_', '-')}", policy=policy, tested=tested)
            if drill.reasons is AGAINST and not tested:
                # The model alone may insist on moving forward: the instruction then ends.
                assert isinstance(drill.fault, BrokenRobot)
                drill = replace(drill, fault=replace(drill.fault, reset=True), recovery=_NEXT)
            found.append(drill)
    return found

# SPDX-License-Identifier: Apache-2.0
"""Drills of a base, a driver or an odometry that does not do what it says; each under both exploration policies.

Early action and prefetch are on, as in config/robot.yaml.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from specnav.drill import faults_words as words
from specnav.drill.definitions import (
    GRACE_S,
    Drill,
    DrillFault,
    ExpectedReaction,
    ExpectedRecovery,
    Moment,
    Reason,
    Term,
    TimeBound,
)
from specnav.drill.faults import BrokenRobot
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

_ODOMETRY_SOUND: dict[str, bool | float | str] = {"odom_fault": "none"}
_BASE_SOUND: dict[str, bool | float | str] = {"base_fault": "none"}
_ITSELF, _NEXT = ExpectedRecovery.BY_ITSELF, ExpectedRecovery.NEXT_INSTRUCTION
_FORWARD: dict[str, Any] = {"needs": "forward", "lasts_s": 2.5}
_LYING: tuple[
    tuple[
        str,
        str,
        DrillFault,
        TimeBound,
        tuple[Reason, ...],
        ExpectedReaction,
        ExpectedRecovery,
        dict[str, Any],
    ],
    ...,
] = (
    (
        "odometry-frozen",
        "odometry repeats one pose with new stamps",
        BrokenRobot({"odom_fault": "frozen"}, _ODOMETRY_SOUND),
        RESPONSE,
        (Reason(STATUS, "NO_RESPONSE"),),
        ExpectedReaction.STOPS,
        _ITSELF,
        {},
    ),
    (
        "base-stuck",
        "the base does not go forward",
        BrokenRobot({"base_fault": "stuck"}, _BASE_SOUND),
        RESPONSE,
        AGAINST,
        ExpectedReaction.HALTS,
        _ITSELF,
        _FORWARD,
    ),
    (
        "base-delayed",
        "every velocity takes effect 0.6 s later",
        BrokenRobot({"command_delay_s": 0.6}, {"command_delay_s": 0.0}),
        AT_ONCE,
        (),
        ExpectedReaction.GOES_ON,
        _ITSELF,
        {"lasts_s": 6.0, "never": NOTHING_WRONG, "present": False},
    ),
    (
        "zeros-dropped",
        "the driver drops zeros; the operator says stop",
        words.ZerosDropped(),
        STOPPED_BY_BASE,
        (Reason(STATUS, "STOPPED"),),
        ExpectedReaction.STOPS,
        _NEXT,
        {"lasts_s": 2.0, "by_odometry": True, "needs": "forward"},
    ),
    (
        "odometry-scaled",
        "odometry tells three times the way",
        BrokenRobot({"odom_fault": "scaled", "odom_scale": 3.0}, _ODOMETRY_SOUND, reset=True),
        RESPONSE,
        WRONG,
        ExpectedReaction.HALTS,
        _NEXT,
        {"lasts_s": 4.0},
    ),
    (
        "odometry-mirrored",
        "odometry turns the other way",
        BrokenRobot({"odom_fault": "mirrored"}, _ODOMETRY_SOUND, reset=True),
        RESPONSE,
        WRONG,
        ExpectedReaction.HALTS,
        _NEXT,
        {"lasts_s": 4.0, "needs": "turn"},
    ),
    (
        "pushed",
        "the robot is pushed aside at 0.4 m/s",
        BrokenRobot({"base_fault": "pushed"}, _BASE_SOUND),
        RESPONSE,
        PUSHED,
        ExpectedReaction.STOPS,
        _ITSELF,
        {"lasts_s": 1.6},
    ),
    (
        "rear-blocked",
        "the base goes neither forward nor back: backing off would be blind",
        BrokenRobot({"base_fault": "rear_blocked"}, _BASE_SOUND),
        RESPONSE,
        AGAINST,
        ExpectedReaction.HALTS,
        _ITSELF,
        _FORWARD,
    ),
    (
        "estop-best-effort",
        "an emergency stop published best effort, and an instruction a second later",
        words.EmergencyStop(),
        OPERATOR,
        (Reason(STATUS, "ESTOPPED"),),
        ExpectedReaction.STOPS,
        _NEXT,
        {"lasts_s": 3.0, "prompt": True},
    ),
)


def lying_bases() -> list[Drill]:
    """A base, a driver or an odometry that does not do what it says, under each policy."""
    found = []
    for policy in ("none", "frontier_search"):
        for name, what, fault, bound, reasons, reaction, recovery, more in _LYING:
            tested = policy == "frontier_search"
            if reasons is AGAINST and not tested and isinstance(fault, BrokenRobot):
                # The model alone may want nothing but forward: the instruction then ends.
                fault, recovery = replace(fault, reset=True), _NEXT
            found.append(
                Drill(
                    f"{name}-{policy.replace('_', '-')}",
                    what,
                    Moment.MOVING,
                    fault,
                    bound,
                    reasons,
                    reaction,
                    recovery,
                    policy=policy,
                    tested=tested,
                    within_s=15.0,
                    **{"present": True, **more},
                )
            )
    return found

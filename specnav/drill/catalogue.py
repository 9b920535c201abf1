# SPDX-License-Identifier: Apache-2.0
"""All drills as data: fault and moment, time bound of the motion, expected reasons, and recovery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from specnav.drill import faults
from specnav.drill import faults_words as words
from specnav.drill.definitions import (
    GRACE_S,
    Drill,
    ExpectedReaction,
    ExpectedRecovery,
    Moment,
    Reason,
    Term,
    TimeBound,
)
from specnav.drill.faults import BrokenRobot
from specnav.drill.lying import AT_ONCE, MOVER, OPERATOR, lying_bases
from specnav.errors import HarnessError
from specnav.supervise import meddling
from specnav.supervise.meddling import Meddler
from specnav.supervise.robot_stack import COMMAND, METRICS, STATUS, SUPERVISION, Stack

DECIDER = "vlm_nav_node"
THINKING = (Moment.PREFILL, Moment.MID_ROUND, Moment.BETWEEN_ROUNDS)

LONG_CUT_S = 12.0
"""The verifier forgets a connection that was silent for 10 s."""
TESTED_CUTS = ((Moment.PREFILL, 2.0), (Moment.MID_ROUND, 0.2), (Moment.BETWEEN_ROUNDS, 2.0))
"""In CI, beside those of a robot that moves: one at each other moment."""
TESTED_ORDERS = (("cancel", Moment.PREFILL), ("stop", Moment.MID_ROUND), ("preempt", Moment.SETTLING))
"""In CI, beside those to a robot that moves: one at each other moment."""
LINK = TimeBound((Term(DECIDER, "link_timeout_s"),))
CAMERA = TimeBound((Term(DECIDER, "camera_timeout_s"),))
ODOMETRY = TimeBound((Term(MOVER, "odom_timeout_s"),))
SUPERVISOR = TimeBound((Term(MOVER, "supervisor_timeout_s"),))
# The turn that reveals a frozen picture, and four frames; then the node's own tick and ours.
PICTURE = TimeBound(seconds=0.2 / 0.35 + 0.4 + GRACE_S, note="0.2 rad at 0.35 rad/s, 4 frames, 100 ms")
BASE = TimeBound(
    (Term("navsim", "command_hold"),), 0.25 / 1.5 + GRACE_S, "slowing down from 0.25 m/s at 1.5 m/s2, 100 ms"
)

LINK_LOST = (
    Reason(SUPERVISION, "LOST"),
    Reason(METRICS, "LINK_LOST"),
    Reason(STATUS, "LINK_LOST"),
)
STALE_CAMERA = (Reason(METRICS, "STALE_CAMERA"), Reason(STATUS, "STALE_CAMERA"))
STALE_ODOM = (Reason(STATUS, "STALE_ODOM"),)


def _cuts() -> list[Drill]:
    found = []
    for moment in (*THINKING, Moment.MOVING):
        for lasts_s in (0.2, 2.0, LONG_CUT_S):
            short = lasts_s < 1.0
            found.append(
                Drill(
                    f"link-cut-{lasts_s:g}s-{moment.value.replace(' ', '-')}",
                    f"the link is cut for {lasts_s:g} s",
                    faults.link_cut,
                    LINK,
                    () if short else LINK_LOST,
                    ExpectedReaction.GOES_ON if short else ExpectedReaction.STOPS,
                    moment=moment,
                    lasts_s=lasts_s,
                    tested=moment is Moment.MOVING or (moment, lasts_s) in TESTED_CUTS,
                )
            )
    return found


def _verifiers() -> list[Drill]:
    found = []
    for moment in (Moment.MID_ROUND, Moment.MOVING):
        found += [
            Drill(
                f"verifier-killed-{moment.value}",
                "the verifier is killed (SIGKILL) and restarted",
                partial(faults.killed, "verifier"),
                LINK,
                LINK_LOST,
                moment=moment,
                lasts_s=1.8,
                within_s=20.0,
                tested=moment is Moment.MID_ROUND,
            ),
            Drill(
                f"verifier-frozen-{moment.value}",
                "the verifier is connected but silent (SIGSTOP)",
                partial(faults.frozen, "verifier"),
                LINK,
                LINK_LOST,
                moment=moment,
                lasts_s=1.8,
                tested=moment is Moment.MOVING,
            ),
        ]
    spoiled: tuple[tuple[str, str, Callable[[], Meddler], bool], ...] = (
        ("garbage", "the verifier answers garbage", lambda: meddling.garbage(0), True),
        ("foreign", "the verifier answers for another session", lambda: meddling.foreign, True),
        ("late", "the verifier's answers come 3 s late", lambda: meddling.late(3.0), True),
        ("slow", "the verifier's answers come 0.3 s late", lambda: meddling.late(0.3), False),
        ("twice", "the verifier sends every message twice", lambda: meddling.twice, False),
    )
    for name, what, make, bad in spoiled:
        found.append(
            Drill(
                f"verifier-{name}",
                what,
                partial(faults.spoiled, make),
                LINK,
                LINK_LOST if bad else (),
                ExpectedReaction.STOPS if bad else ExpectedReaction.GOES_ON,
                moment=Moment.MID_ROUND,
                lasts_s=4.0 if bad else 2.0,
                within_s=12.0 if bad else Drill.within_s,
            )
        )
    return found


def _camera(name: str, what: str, bound: TimeBound) -> Drill:
    broken = BrokenRobot({"camera_fault": name}, {"camera_fault": "none"})
    return Drill(f"camera-{name.replace('_', '-')}", what, broken, bound, STALE_CAMERA)


def _odometry(name: str, what: str, bound: TimeBound) -> Drill:
    broken = BrokenRobot({"odom_fault": name}, {"odom_fault": "none"})
    return Drill(f"odometry-{name}", what, broken, bound, STALE_ODOM)


def _stamps(name: str, seconds: float) -> Drill:
    return Drill(
        f"stamps-{name}",
        f"header stamps of camera and odometry are off by {seconds:g} s",
        BrokenRobot({"stamp_offset_s": seconds}, {"stamp_offset_s": 0.0}),
        AT_ONCE,
        reaction=ExpectedReaction.GOES_ON,
        lasts_s=2.0,
        within_s=4.0,
    )


def _sensors() -> list[Drill]:
    return [
        _camera("stopped", "the camera falls silent", CAMERA),
        _camera("frozen", "the camera repeats one frame with its stamp", CAMERA),
        _camera("frozen_restamped", "the camera repeats one picture with new stamps", PICTURE),
        _camera("black", "the camera shows black", PICTURE),
        Drill(
            "camera-1hz",
            "the camera delivers one frame a second",
            BrokenRobot({"camera_rate": 1.0}, {"camera_rate": 10.0}),
            CAMERA,
            reaction=ExpectedReaction.KEEPS_FRESH,
            lasts_s=5.0,
        ),
        _odometry("stopped", "odometry falls silent", ODOMETRY),
        _odometry("jumping", "odometry jumps to and fro by 2 m", AT_ONCE),
        _odometry("nan", "odometry is NaN", AT_ONCE),
        _stamps("past", -12.0),
        _stamps("future", 12.0),
    ]


def _processes() -> list[Drill]:
    lost = (Reason(STATUS, "SUPERVISOR_LOST"),)
    again = ExpectedRecovery.NEXT_INSTRUCTION
    return [
        Drill(
            "vlm-nav-node-killed",
            "vlm_nav_node is killed (SIGKILL) and restarted",
            partial(faults.killed, "decider"),
            SUPERVISOR,
            lost,
            recovery=again,
        ),
        Drill(
            "vlm-nav-node-frozen",
            "vlm_nav_node is alive but silent (SIGSTOP)",
            partial(faults.frozen, "decider"),
            SUPERVISOR,
            lost,
            recovery=again,
        ),
        Drill(
            "motion-node-killed",
            "motion_node is killed (SIGKILL) and restarted; the base holds a command for 1 s",
            partial(faults.killed, "mover"),
            BASE,
            (Reason(COMMAND, "HOLD", "motion_node is silent"),),
            lasts_s=6.0,
            within_s=12.0,
            by_odometry=True,
        ),
    ]


def _numbers_and_clocks() -> list[Drill]:
    return [
        Drill(
            "command-nan",
            "a motion command of NaNs in the name of vlm_nav_node",
            partial(words.ordered, words.nan_command),
            AT_ONCE,
            (Reason(STATUS, "REFUSED", "its nonce is not the next of its session"),),
            ExpectedReaction.GOES_ON,
            lasts_s=0.5,
            prompt=True,
        ),
        Drill(
            "supervision-nan",
            "heartbeats with ages of NaN",
            words.nan_lives,
            AT_ONCE,
            STALE_CAMERA,
            ExpectedReaction.HALTS,  # the node's own heartbeats come in between
            lasts_s=1.0,
        ),
        Drill(
            "clock-jumping",
            "use_sim_time, and /clock jumps by hours",
            words.clock_jumps,
            AT_ONCE,
            reaction=ExpectedReaction.GOES_ON,
            lasts_s=3.0,
            within_s=4.0,
        ),
        Drill(
            "instruction-flood",
            "1000 instructions per second for 3 s",
            words.flooded,
            OPERATOR,
            (Reason(COMMAND, "HOLD", "new instruction"),),
            lasts_s=3.0,
            prompt=True,
        ),
    ]


def _orders() -> list[Drill]:
    orders = (
        ("cancel", "~/cancel", Stack.cancel),
        ("stop", 'the instruction "stop"', words.say_stop),
        ("stop-topic", "the topic stop of motion_node", words.stop_topic),
        ("stop-service", "the service ~/stop of motion_node", words.stop_service),
        ("preempt", "another instruction", words.preempt),
    )
    found = []
    for name, what, give in orders:
        goes_on = name == "preempt"
        for moment in (Moment.PREFILL, Moment.MID_ROUND, Moment.MOVING, Moment.SETTLING):
            found.append(
                Drill(
                    f"{name}-{moment.value}",
                    what,
                    partial(words.ordered, give),
                    OPERATOR,
                    (Reason(STATUS, "STOPPED"),),
                    ExpectedReaction.HALTS if goes_on else ExpectedReaction.STOPS,
                    ExpectedRecovery.BY_ITSELF if goes_on else ExpectedRecovery.NEXT_INSTRUCTION,
                    moment,
                    lasts_s=1.0,
                    release_s=0.4 if moment.point else 0.0,
                    prompt=True,
                    tested=moment is Moment.MOVING or (name, moment) in TESTED_ORDERS,
                )
            )
    return found


def all_drills() -> list[Drill]:
    """Every drill, in the order of the report."""
    return [
        *_orders(),
        *_cuts(),
        *_verifiers(),
        *_sensors(),
        *_processes(),
        *_numbers_and_clocks(),
        *lying_bases(),
    ]


def choose(names: Sequence[str]) -> list[Drill]:
    """The drills whose names start with these; all without names. Raises HarnessError."""
    known = all_drills()
    if not names:
        return known
    for name in names:
        if not any(drill.name.startswith(name) for drill in known):
            raise HarnessError(f"no fault is called {name!r}; `specnav drill --list` lists them")
    return [drill for drill in known if any(drill.name.startswith(name) for name in names)]

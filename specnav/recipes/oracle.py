# SPDX-License-Identifier: Apache-2.0
"""The correct answer about a frame: the oracle's facts, its action, and their wording.

A *view* is the oracle's knowledge of one object in one frame. Facts are separate from wording, so that wording and
rules can change without rendering again. The action depends only on the current frame, never on memory.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from spec_vlm_nav.language.actions import Action, ActionKind

STOP_DISTANCE = 0.62  # metres to the surface; success needs 0.8
STOP_BEARING = 30.0  # degrees; success needs 45
AHEAD = 15.0  # stated bearings below this: go straight on
SMALL_TURN = 25.0  # stated bearings below this: turn by 15
DETOUR_AHEAD = 26.0  # way round within this bearing: go straight on, so that a detour is not reversed at once
KEEP_IN_VIEW = 40.0  # a detour's turn must not move the target beyond this bearing
STEPS = (75, 50, 25)  # centimetres
REACH = 0.50  # a step should end no closer to the target than this, metres
WALKABLE = 0.80  # free length at which the way counts as clear if the target is not seen, metres
SPARE = 0.04  # free length required beyond a step, metres

TEMPLATES = (
    "find the {}", "go to the {}", "look for the {}", "walk to the {}", "stop at the {}", "move to the {}",
    "drive to the {}", "head to the {}", "reach the {}", "approach the {}", "search for the {}", "get to the {}",
    "find a {}", "walk over to the {}", "stop in front of the {}", "please find the {}", "go near the {}",
)  # fmt: skip


@dataclass(frozen=True)
class VisibleObject:
    """One object in one frame.

    bearing: degrees, left positive, of the middle of the visible part. distance: metres to its surface. ahead_free: how
    far the robot can go straight on, metres (capped). blocked: whether the direct way to the object is not free.
    way: direction of the planned way round, degrees, left positive; NaN if the direct way is free.
    """

    bearing: float
    distance: float
    ahead_free: float
    blocked: bool
    way: float


def stated_bearing(bearing: float) -> int:
    """The bearing as stated in answers: multiples of five degrees."""
    return round(bearing / 5.0) * 5


def stated_distance(distance: float) -> str:
    """The distance as stated in answers: tenths below two metres, halves above."""
    rounded = round(distance, 1) if distance < 1.95 else round(distance * 2) / 2
    return f"{rounded:.1f}"


def _forward(wanted: float, free: float) -> Action | None:
    """The longest step of at most `wanted` metres that the free length allows, or None."""
    for step in STEPS:
        if step / 100 <= max(wanted, 0.25) + 1e-6 and step / 100 + SPARE <= free:
            return Action(ActionKind.FORWARD, step)
    return None


def _turn(degrees: float) -> Action:
    kind = ActionKind.TURN_LEFT if degrees > 0 else ActionKind.TURN_RIGHT
    return Action(kind, 15 if abs(degrees) < SMALL_TURN else 30)


def decide(view: VisibleObject) -> tuple[Action, bool]:
    """The oracle's action for a visible object, and whether it calls the way blocked."""
    bearing = stated_bearing(view.bearing)
    if view.distance <= STOP_DISTANCE and abs(bearing) <= STOP_BEARING:
        return Action(ActionKind.STOP), False
    if view.distance <= STOP_DISTANCE:
        return _turn(bearing), False
    if not view.blocked:
        if abs(bearing) >= AHEAD:
            return _turn(bearing), False
        step = _forward(view.distance - REACH, view.ahead_free)
        if step is not None:
            return step, False
        if abs(bearing) >= 5:
            return _turn(math.copysign(15, bearing)), False
        return Action(ActionKind.FORWARD, 25), False
    way = 0.0 if math.isnan(view.way) else view.way
    step = _forward(min(view.distance - REACH, 0.5), view.ahead_free - SPARE)
    if abs(way) < DETOUR_AHEAD and step is not None:
        return step, True
    turn = _turn(way)
    signed = turn.amount if turn.kind is ActionKind.TURN_LEFT else -turn.amount
    if abs(view.bearing - signed) > KEEP_IN_VIEW:
        if step is not None:
            return step, True
        turn = Action(turn.kind, 15)
    return turn, True


def answer_seen(name: str, view: VisibleObject) -> str:
    """The answer about a visible object."""
    action, blocked = decide(view)
    bearing = stated_bearing(view.bearing)
    side = "ahead" if abs(bearing) < 5 else f"{'left' if bearing > 0 else 'right'} {abs(bearing)} degrees"
    way = "blocked" if blocked else "clear"
    return f"I see the {name}, {side}, about {stated_distance(view.distance)} m, {way}. {action.sentence}"


def answer_unseen(name: str, ahead_free: float) -> str:
    """The answer about an object that the frame does not show: say so, and turn left to look around."""
    way = "clear" if ahead_free >= WALKABLE else "blocked"
    return f"I do not see the {name}, {way}. {Action(ActionKind.TURN_LEFT, 45).sentence}"


def instruct(name: str, rng: random.Random) -> str:
    """An instruction that names an object; most often the plain "find the ..."."""
    return (TEMPLATES[0] if rng.random() < 0.35 else rng.choice(TEMPLATES)).format(name)

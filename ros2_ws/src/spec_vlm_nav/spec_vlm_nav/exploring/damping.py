# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Damping of the model's own actions: it halves oscillating turns and passes touched obstacles.

It does not use the robot's position; it counts decisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from spec_vlm_nav.common.codes import ActionSource
from spec_vlm_nav.exploring.moves import Move, Observation
from spec_vlm_nav.language.actions import Action, ActionKind


@dataclass(frozen=True)
class Damping:
    """Complete memory of the damping."""

    last_action: Action | None = None
    flips: int = 0  # consecutive turns that reversed the previous one
    freeing: int = 0  # remaining moves for passing an obstacle
    detours: int = 0  # obstacles passed so far: the side alternates


# The rules' names, as they appear in metrics and reports.
RULE_CONTACT = "contact: turn aside"
RULE_FREEING = "something in the way: pass it"
RULE_DAMPED = "turn sign flipped: halved"

SIDESTEP = (Action(ActionKind.TURN_LEFT, 45), Action(ActionKind.TURN_RIGHT, 45))
PASS_BY = Action(ActionKind.FORWARD, 50)
DETOUR_MOVES = 3  # after the first turn aside: turns until the way is clear, and one step
FLIPS_LIMIT = 4  # reversed turns before the robot goes round on one side
SMALLEST_TURN = 7.5  # degrees; halving stops here


def damped(state: Damping, seen: Observation) -> tuple[Damping, Move]:
    """Return the new memory and the move: the model's own, unless a rule replaces it."""
    flips = freeing = 0
    detours = state.detours
    last = state.last_action
    move = Move(seen.proposed, ActionSource.MODEL)
    if seen.proposed.is_stop:
        pass
    elif seen.contact:
        # Never backward: nothing is known of what is behind. On the way to the target the touched
        # obstacle must be passed; during a search, looking around continues.
        freeing, detours = (DETOUR_MOVES if seen.sees_target else 0), detours + 1
        move = Move(SIDESTEP[detours % 2], ActionSource.EXPLORATION, RULE_CONTACT)
    elif state.freeing:
        if seen.ahead_clear:
            move = Move(PASS_BY, ActionSource.EXPLORATION, RULE_FREEING)
        elif seen.ahead_clear is False and state.freeing > 1:
            move = Move(SIDESTEP[detours % 2], ActionSource.EXPLORATION, RULE_FREEING)
            freeing = state.freeing - 1
    elif seen.proposed.is_turn:
        flips = state.flips
        if last is not None and last.is_turn and seen.proposed.kind is not last.kind:
            flips += 1
            halved = max(last.amount / 2, SMALLEST_TURN)
            if flips >= FLIPS_LIMIT:
                flips, detours, freeing = 0, detours + 1, DETOUR_MOVES
                move = Move(SIDESTEP[detours % 2], ActionSource.EXPLORATION, RULE_FREEING)
            elif halved < seen.proposed.amount:
                move = Move(Action(seen.proposed.kind, halved), ActionSource.EXPLORATION, RULE_DAMPED)
    return Damping(move.action, flips, freeing, detours), move

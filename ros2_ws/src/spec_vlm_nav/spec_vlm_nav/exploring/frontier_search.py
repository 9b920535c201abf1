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
A search that remembers by odometry where the robot has looked and walked.

While the model sees the target, its actions are followed, damped. The target's position stays in
the map: after a detour the robot turns back to it, and a look-alike that was examined twice is not
followed for ever. While the target is not seen, the next look is taken where it finds most for its
cost. The search never walks into a touched obstacle, never backward, and not where the model calls
the way blocked. There is one exception: if the robot is stuck and the camera's height is known, it
makes a short step where the picture shows that the floor goes on. With the camera's height it also
passes obstacles beside it, remembered from earlier pictures, at a larger distance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
import math

from spec_vlm_nav.common.codes import ActionSource
from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.damping import damped, Damping
from spec_vlm_nav.exploring.detour import Detour, STRIDES
from spec_vlm_nav.exploring.enclosed import CLEAR_M, Enclosed, FLOOR_M, LENGTH_M
from spec_vlm_nav.exploring.floor_reading import read_floor, RobotBody
from spec_vlm_nav.exploring.moves import Move, Observation, turn_by
from spec_vlm_nav.exploring.search_map import CELL, SearchMap
from spec_vlm_nav.exploring.search_plan import LEAST_TURN, limited, next_leg
from spec_vlm_nav.exploring.side_obstacles import Passing, SideObstacles
from spec_vlm_nav.language.actions import Action, ActionKind
from spec_vlm_nav.language.sightings import Sighting

RULE_LOOK = "not seen: look where it may be"
RULE_WALK = "not seen: walk to where it may be seen"
RULE_LOST = "lost from view straight ahead: on"
RULE_AGAIN = "touched this way before: turn aside"
RULE_OUT = "no way on from here: look for one out"
RULE_ROUND = "to and fro on one spot: go round"

LONGEST_M = 0.8  # longest motion; a larger displacement was not a straight line
JUMP_M = 1.5  # a larger displacement means that odometry was reset
TRIES = 3  # plans tried before looking around instead
MISSES, NEAR_M, STRAIGHT = 2, 1.0, math.radians(20)
ON = Action(ActionKind.FORWARD, 50)
AWAY = Action(ActionKind.FORWARD, 70)
LOOK_AROUND = Action(ActionKind.TURN_LEFT, 60)
SIDE_TRUST, TRUST = 0.35, 0.7  # weight of a sighting at the picture's edge, and elsewhere
SIDE = math.radians(33)


@dataclass(frozen=True)
class FrontierState:
    """
    Complete memory of the search.

    known: the map; None before the first look with odometry. spot: where the target was seen last,
    metres. misses: decisions since then without it. beside: obstacles beside the robot.
    """

    known: SearchMap | None = None
    place: Pose | None = None
    damping: Damping = field(default_factory=Damping)
    detour: Detour = field(default_factory=Detour)
    passing: Passing = field(default_factory=Passing)
    spot: tuple[float, float] | None = None
    misses: int = 0
    beside: SideObstacles = field(default_factory=SideObstacles)
    enclosed: Enclosed = field(default_factory=Enclosed)


def frontier_search(state: FrontierState, seen: Observation) -> tuple[FrontierState, Move]:
    """Return the new memory and the move."""
    place = seen.place
    if place is None or not place.is_finite:  # the map needs odometry
        return _lead(state, seen)
    if state.place is not None and state.place.distance(place) > JUMP_M:
        state = FrontierState(damping=state.damping)
    body, read = None, None
    if seen.look is not None:
        body = seen.look.body
        read = read_floor(seen.look.picture, body.camera, state.beside.colour)
    if body is None or read is None:
        return _searched(state, seen, place)
    state = replace(state, beside=state.beside.looks(place, *read))
    state, move = _searched(state, seen, place, body)
    beside, wider = state.beside.wider(
        move,
        place,
        body.radius_m,
        seen.ahead_clear,
        seen.contact,
        seen.sighting.distance if seen.sees_target and seen.sighting is not None else None,
    )
    state = replace(state, beside=beside)
    return (state, move) if wider is move else _moved(state, wider)


def _searched(
    state: FrontierState, seen: Observation, place: Pose, body: RobotBody | None = None
) -> tuple[FrontierState, Move]:
    """
    Return the new memory and the move, before obstacles beside the robot are considered.

    body: None if the floor could not be read.
    """
    known = learn(_walked_to(state, place), seen, place)
    is_shut = seen.sees_target is False and seen.ahead_clear is False
    enclosed = state.enclosed.decided_at(place, is_shut)
    state = replace(state, known=known, place=place, enclosed=enclosed)
    if seen.proposed.is_stop or (not seen.sees_target and seen.ahead_clear is None):
        return _lead(state, seen)
    if seen.sees_target and seen.sighting is not None:
        sighting = seen.sighting
        detour = state.detour.sees(place, sighting.bearing, sighting.distance, seen.ahead_clear)
        state = replace(state, detour=detour, spot=_spot(sighting, place), misses=0)
    elif not seen.sees_target:
        state = replace(state, misses=state.misses + 1)
    if body is not None and (state.enclosed.is_stuck or state.enclosed.strides):
        state, move = _way_out(state, seen, place, body.radius_m)
        if move is not None:
            return _moved(state, move)
    if state.detour.strides and not seen.contact:
        state, move = _go_round(state, known, seen, place)
        if move is not None:
            return state, move
    if seen.sees_target:
        return _follow(state, seen, place)
    if seen.contact:
        state = replace(state, passing=state.passing.touches(place))
    known, move = _search(state, seen, place)
    return _moved(replace(state, known=known), move)


def _way_out(
    state: FrontierState, seen: Observation, place: Pose, radius: float
) -> tuple[FrontierState, Move | None]:
    """Return the next move out of a place where the robot is stuck; None: continue the search."""
    if seen.contact:
        state = replace(state, passing=state.passing.touches(place))
    enclosed = state.enclosed
    is_floor = enclosed.is_stuck and state.beside.gap(place, place.yaw, LENGTH_M) > radius
    if (seen.ahead_clear or is_floor) and not state.passing.has_touched(place):
        far = CLEAR_M if seen.ahead_clear else FLOOR_M
        on = Action(ActionKind.FORWARD, round(100 * far))
        state = replace(state, enclosed=enclosed.strides_on())
        return state, Move(on, ActionSource.EXPLORATION, RULE_OUT)
    is_out, enclosed = enclosed.strides > 0, enclosed.without_way(place)
    way = None if is_out else enclosed.untried(state.beside, place, radius)
    if way is None:
        enclosed = enclosed if is_out else enclosed.given_up()
        return replace(state, enclosed=enclosed), None
    return replace(state, enclosed=enclosed), _turn(limited(wrap(way - place.yaw)), RULE_OUT)


def _lead(state: FrontierState, seen: Observation) -> tuple[FrontierState, Move]:
    """Follow the model's action, damped."""
    damping, move = damped(state.damping, seen)
    return replace(state, damping=damping), move


def _follow(state: FrontierState, seen: Observation, place: Pose) -> tuple[FrontierState, Move]:
    """Follow the model to the visible target, but keep away from touched obstacles."""
    bearing = seen.sighting.bearing if seen.sighting is not None else 0.0
    passing = state.passing.sees(bearing, seen.ahead_clear)
    if seen.contact:
        passing = passing.touches(place)
        # The damping alternates sides: adjust its counter so that it turns to the free side.
        to_left, detours = passing.side_of(bearing) < 0, state.damping.detours
        detours += (detours % 2 == 0) is to_left
        state = replace(state, damping=replace(state.damping, detours=detours))
    state = replace(state, passing=passing)
    led, move = _lead(state, seen)
    if move.action.distance_m and (turn := passing.around(place, bearing)):
        return _moved(state, Move(turn, ActionSource.EXPLORATION, RULE_AGAIN))
    return led, move


def _moved(state: FrontierState, move: Move) -> tuple[FrontierState, Move]:
    """Return the memory after a move chosen by the search, which resets the damping."""
    damping = Damping(move.action, detours=state.damping.detours)
    return replace(state, damping=damping), move


def _go_round(
    state: FrontierState, known: SearchMap, seen: Observation, place: Pose
) -> tuple[FrontierState, Move | None]:
    """Return the next move of a detour; None if it is over."""
    detour = state.detour
    is_out = not seen.sees_target and bool(seen.ahead_clear)
    is_out = is_out and not known.is_solid(place, place.yaw, AWAY.distance_m)
    if detour.strides < STRIDES and is_out:
        turn = 0.0
    elif detour.strides < STRIDES:
        return replace(state, detour=replace(detour, strides=0)), None
    else:
        way = detour.way_out(known, place)
        if way is not None and abs(wrap(way - place.yaw)) < LEAST_TURN and not is_out:
            detour = replace(detour, tried=(*detour.tried, place.yaw))
            way = detour.way_out(known, place)
        if way is None:
            return replace(state, detour=replace(detour, strides=0)), None
        turn = wrap(way - place.yaw)
    if abs(turn) >= LEAST_TURN:
        return _moved(replace(state, detour=detour), _turn(limited(turn), RULE_ROUND))
    return _moved(
        replace(state, detour=detour.strides_on(place)),
        Move(AWAY, ActionSource.EXPLORATION, RULE_ROUND),
    )


def learn(known: SearchMap, seen: Observation, place: Pose) -> SearchMap:
    """Return the map updated by this decision."""
    known = known.walked(place)
    if seen.contact:
        known = known.touched(place, place.yaw)
    if seen.sees_target and seen.sighting is not None:
        bearing, distance = seen.sighting.bearing, seen.sighting.distance
        trust = TRUST if abs(bearing) < SIDE else SIDE_TRUST
        return known.with_target(place, bearing, distance, trust)
    if seen.sees_target is False:
        known = known.without_target(place, seen.ahead_clear)
        if seen.ahead_clear is not None:
            known = known.said(place, seen.ahead_clear)
    return known


def _walked_to(state: FrontierState, place: Pose) -> SearchMap:
    """Return the map with the way from the last decision to here marked free."""
    known, last = state.known, state.place
    if known is None or last is None:
        return SearchMap.around(place.x, place.y)
    gone = last.distance(place)
    steps = math.ceil(gone / CELL) if gone <= LONGEST_M else 0
    for step in range(1, steps):
        x = last.x + (place.x - last.x) * step / steps
        y = last.y + (place.y - last.y) * step / steps
        known = known.walked(Pose(x, y, place.yaw))
    return known.following(place)


def _search(state: FrontierState, seen: Observation, place: Pose) -> tuple[SearchMap, Move]:
    """Return the map and the first motion of the best permitted plan."""
    known = state.known or SearchMap.around(place.x, place.y)
    if _is_straight_ahead(state, place) and seen.ahead_clear and not seen.contact:
        return known, Move(ON, ActionSource.EXPLORATION, RULE_LOST)
    for _ in range(TRIES):
        leg = next_leg(known, place)
        if leg.turn:
            return known, _turn(leg.turn, RULE_LOOK)
        is_solid = known.is_solid(place, place.yaw, leg.distance)
        if seen.ahead_clear and not is_solid and not state.passing.has_touched(place):
            action = Action(ActionKind.FORWARD, round(leg.distance * 100))
            return known, Move(action, ActionSource.EXPLORATION, RULE_WALK)
        known = known.refused(place)
    return known, Move(LOOK_AROUND, ActionSource.EXPLORATION, RULE_LOOK)


def _is_straight_ahead(state: FrontierState, place: Pose) -> bool:
    """Return whether the target was seen lately, straight ahead and at a distance."""
    if state.spot is None or state.misses > MISSES:
        return False
    dx, dy = state.spot[0] - place.x, state.spot[1] - place.y
    off = abs(wrap(math.atan2(dy, dx) - place.yaw))
    is_on_the_way = off <= STRAIGHT and math.hypot(dx, dy) >= NEAR_M
    return is_on_the_way and not state.passing.has_touched(place)


def _spot(sighting: Sighting, place: Pose) -> tuple[float, float]:
    towards = place.yaw + sighting.bearing
    far = sighting.distance
    return place.x + far * math.cos(towards), place.y + far * math.sin(towards)


def _turn(angle: float, rule: str) -> Move:
    return Move(turn_by(angle), ActionSource.EXPLORATION, rule)

"""A spot that the robot does not get away from: where the floor goes on it leaves, and nowhere else."""

import math

import numpy as np
import pytest

from spec_vlm_nav.common.geometry import Pose, wrap
from spec_vlm_nav.exploring.enclosed import PATIENCE, SHUT, STRIDES, TRIED, Enclosed
from spec_vlm_nav.exploring.floor_reading import FloorPicture, RobotBody
from spec_vlm_nav.exploring.frontier_search import RULE_OUT, FrontierState, frontier_search
from spec_vlm_nav.exploring.moves import ActionSource, Observation
from spec_vlm_nav.exploring.side_obstacles import SideObstacles
from spec_vlm_nav.language.actions import Action, ActionKind
from spec_vlm_nav.language.sightings import Sighting
from tests.robot.painted import SIM, painted

BODY = RobotBody(SIM, 0.26)
HERE, OPEN = Pose(1.0, 2.0, 0.5), painted(SIM)
NEAR_M, FAR_M, WIDTH = 0.75, 4.0, math.radians(30)  # of a round wall, of what is behind its gap, and half the gap
LEFT45 = Action(ActionKind.TURN_LEFT, 45)
FORWARD = ActionKind.FORWARD


def scene(yaw, way):
    """A picture from within a round wall with a gap in it at `way`, radians."""
    bearings = -np.arctan((np.arange(224) + 0.5 - 112) / 112)
    away = np.full(224, NEAR_M)
    if way is not None:
        away[np.abs((yaw + bearings - way + math.pi) % (2 * math.pi) - math.pi) < WIDTH] = FAR_M
    return painted(SIM, wall_m=(away * np.cos(bearings))[None, :])


def story(decisions, way=None, sees=False, looks=True, contact_at=None, picture=None):
    """Turn as told on one spot, `way` (degrees) the only one with floor; the moves, each with its heading."""
    state, yaw, moves = FrontierState(), 0.3, []
    for k in range(decisions):
        shown = scene(yaw, None if way is None else math.radians(way)) if picture is None else picture
        seen = Observation(
            LEFT45,
            sees,
            k == contact_at,
            False,
            Sighting(0.2, 2.0) if sees else None,
            Pose(1.0, 2.0, yaw),
            FloorPicture(shown, BODY) if looks else None,
        )
        state, move = frontier_search(state, seen)
        moves.append((yaw, move))
        if move.action.kind is FORWARD:
            break
        yaw = wrap(yaw + move.action.angle_rad)
    return moves


@pytest.mark.slow
@pytest.mark.parametrize("way", [-170, -100, -30, 60, 140])
def test_it_leaves_where_the_floor_goes_on_though_every_way_is_called_blocked(way):
    yaw, move = story(50, way)[-1]
    assert move.action.kind is FORWARD and move.rule == RULE_OUT and move.source is ActionSource.EXPLORATION
    assert abs(wrap(yaw - math.radians(way))) < WIDTH
    assert move.action.distance_m < 0.5, "a short one: nobody calls the way clear"


@pytest.mark.slow
def test_it_stays_where_the_floor_ends_on_all_sides_and_where_no_camera_is_told():
    for moves in (story(80), story(80, 60, looks=False)):
        assert len(moves) == 80 and all(move.action.is_turn for _, move in moves)


@pytest.mark.slow
def test_where_no_picture_showed_floor_the_search_goes_on_as_without_one():
    moves = story(30, picture=painted(SIM, wall_m=0.5))
    assert len(moves) == 30 and all(move.rule != RULE_OUT for _, move in moves)


@pytest.mark.slow
def test_when_every_heading_was_tried_the_search_goes_on_for_a_while():
    rules = [move.rule for _, move in story(130)]
    first = rules.index(RULE_OUT)
    pause = [rule != RULE_OUT for rule in rules[first:]].index(True)
    assert pause > 30
    later = rules[first + pause :]
    assert later.index(RULE_OUT) >= SHUT, "and then they are tried again"


def test_a_second_stride_is_made_only_where_the_way_is_called_clear():
    for clear in (False, True):
        state, place = FrontierState(), HERE
        for k in range(SHUT + 2):
            seen = Observation(LEFT45, False, False, clear and k > SHUT, None, place, FloorPicture(OPEN, BODY))
            state, move = frontier_search(state, seen)
            if k == SHUT:
                assert move.action.kind is FORWARD and move.rule == RULE_OUT
                place = Pose(place.x + 0.3 * math.cos(place.yaw), place.y + 0.3 * math.sin(place.yaw), place.yaw)
        assert (move.rule == RULE_OUT and move.action.kind is FORWARD) is clear


def test_a_spot_is_given_time_before_the_model_is_passed_over():
    moves = story(50, 20)
    assert [move.rule == RULE_OUT for _, move in moves].index(True) == SHUT
    with_target = story(PATIENCE, 20, sees=True)
    assert all(move.rule != RULE_OUT for _, move in with_target), "what sees the target has more of it"


@pytest.mark.slow
def test_the_headings_that_are_tried_are_others():
    yaws = [yaw for yaw, move in story(40) if move.rule == RULE_OUT]
    new = [all(abs(wrap(yaw - other)) > 0.9 * TRIED for other in yaws[:k]) for k, yaw in enumerate(yaws)]
    assert len(yaws) > 25 and sum(new) > 0.8 * len(new), "but those on the way to one that is far off"


@pytest.mark.slow
def test_what_was_touched_is_not_walked_into_again():
    free = story(50, 60)
    touched = story(len(free) + 5, 60, contact_at=len(free) - 1)
    assert touched[len(free) - 1][1].action.is_turn


def stuck():
    enclosed = Enclosed()
    for _ in range(PATIENCE + 1):
        enclosed = enclosed.decided_at(HERE, False)
    return enclosed


def test_another_place_is_another_spot():
    assert stuck().is_stuck
    there = stuck().without_way(HERE).decided_at(Pose(1.3, 2.0, 0.5), False)
    assert not there.is_stuck and there.stays == 1 and not there.tried


def test_floor_as_wide_as_the_robot_is_tried_first():
    around = np.radians(np.arange(0, 360, 5))
    open_way = wrap(HERE.yaw + 2.0)
    ring = around[np.abs((around - open_way + math.pi) % (2 * math.pi) - math.pi) > math.radians(35)]
    points = np.stack([HERE.x + 0.6 * np.cos(ring), HERE.y + 0.6 * np.sin(ring), 0 * ring], axis=1)
    way = stuck().without_way(HERE).untried(SideObstacles(points), HERE, 0.26)
    assert abs(wrap(way - open_way)) < math.radians(20)


def test_the_way_out_goes_on_at_the_next_place():
    assert stuck().strides_on().decided_at(Pose(1.3, 2.0, 0.5), False).strides == STRIDES - 1


def test_strides_on_the_way_out_end():
    leaving = stuck().strides_on()
    for left in range(STRIDES - 1, 0, -1):
        assert leaving.strides == left
        leaving = leaving.strides_on()
    assert leaving.strides == 0
    assert stuck().strides_on().without_way(HERE).strides == 0, "a blocked one ends them"


def test_when_every_heading_was_tried_the_search_goes_on():
    enclosed, tries = stuck(), 0
    while (way := enclosed.untried(SideObstacles(), HERE, 0.26)) is not None:
        enclosed, tries = enclosed.without_way(Pose(HERE.x, HERE.y, way)), tries + 1
    assert 30 < tries < 120
    assert not enclosed.given_up().is_stuck
    assert enclosed.given_up().untried(SideObstacles(), HERE, 0.26) is not None
